//! How much later a change comes through the gateway than from the API server itself.

use anyhow::Result;

use crate::{
    client::Endpoint,
    pods,
    table::Line,
    watches::{Load, Watchers},
    world::World,
};

/// On each side.
const WATCHERS: usize = 100;

/// What came directly, and what came through a server, of the same changes at the same time: milliseconds since they were sent.
struct Latencies {
    direct: Vec<f64>,
    through: Vec<f64>,
}

impl Latencies {
    async fn of(world: &World, server: &Endpoint, load: &Load) -> Result<Self> {
        let (sizes, version) = (&world.sizes, world.version().await?);
        let direct = Watchers::open_timed(&world.upstream.endpoint, load, &version).await?;
        let through = Watchers::open_timed(server, load, &version).await?;
        let pods = (0..sizes.changes).map(|change| change % sizes.pods);
        pods::change(&world.upstream.endpoint, sizes, pods, sizes.rate).await?;
        let events = (sizes.changes * load.watchers) as u64;
        direct.seen(events).await?;
        through.seen(events).await?;
        Ok(Self { direct: direct.latencies(), through: through.latencies() })
    }

    /// Directly, and how much more through the server.
    fn added(&mut self, percent: usize) -> (f64, f64) {
        let direct = percentile(&mut self.direct, percent);
        (direct, percentile(&mut self.through, percent) - direct)
    }
}

/// What the gateway adds, and what the floor does: on few cores most of it is that they wait for the API server to be done with
/// its own watchers.
pub(crate) async fn added(world: &World) -> Result<Vec<Line>> {
    let load = Load::new(WATCHERS.min(world.sizes.watchers), false);
    let mut floor = Latencies::of(world, &world.floor.endpoint, &load).await?;
    let mut gateway = Latencies::of(world, &world.gateway.endpoint, &load).await?;
    let mut line = |name: String, percent, most| {
        let ((direct, added), (_, by_floor)) = (gateway.added(percent), floor.added(percent));
        Line::new(name, "ms", added).api_server(Some(direct)).floor(by_floor).goal(added, most, "ms")
    };
    Ok(vec![
        line(
            format!("latency added to a delivery to {} watchers (API server: all of it), p50", load.watchers),
            50,
            1.0,
        ),
        line("the same, p99".to_owned(), 99, 5.0),
    ])
}

/// The value that so many percent of all are not above.
pub(crate) fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((last * percent + 50) / 100).copied().unwrap_or(f64::NAN)
}
