//! The latency that the gateway adds to the events of the API server.

use anyhow::Result;

use crate::{
    client::Endpoint,
    pods,
    table::Line,
    watches::{Load, Watchers},
    world::World,
};

/// The number of watchers of each server.
const WATCHERS: usize = 100;

/// The latencies of events that were sent directly and through a server, of the same changes at the same time:
/// milliseconds since the write.
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

    /// The direct latency, and the difference of the latency through the server.
    fn added(&mut self, percent: usize) -> (f64, f64) {
        let direct = percentile(&mut self.direct, percent);
        (direct, percentile(&mut self.through, percent) - direct)
    }
}

/// The latency that the gateway adds, and the one that the baseline adds. On few cores most of it is the time in which
/// they wait for the API server to serve its own watchers.
pub(crate) async fn added(world: &World) -> Result<Vec<Line>> {
    let load = Load::new(WATCHERS.min(world.sizes.watchers), false);
    let mut baseline = Latencies::of(world, &world.baseline.endpoint, &load).await?;
    let mut gateway = Latencies::of(world, &world.gateway.endpoint, &load).await?;
    let mut line = |name: String, percent, most| {
        let ((direct, added), (_, by_baseline)) = (gateway.added(percent), baseline.added(percent));
        Line::new(name, "ms", added).api_server(Some(direct)).baseline(by_baseline).goal(added, most, "ms")
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

/// The percentile `percent` of the values; not a number if there are none.
pub(crate) fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((last * percent + 50) / 100).copied().unwrap_or(f64::NAN)
}
