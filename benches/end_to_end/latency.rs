//! How much later a change comes through the gateway than from the API server itself.

use anyhow::Result;

use crate::{
    pods,
    table::Line,
    watches::{Load, Watchers},
    world::World,
};

/// On each side.
const WATCHERS: usize = 100;

/// Watches both at once while the same changes happen.
pub(crate) async fn added(world: &World) -> Result<Vec<Line>> {
    let (sizes, version) = (&world.sizes, world.version().await?);
    let load = Load::new(WATCHERS.min(sizes.watchers), false);
    let direct = Watchers::open_timed(&world.upstream.endpoint, &load, &version).await?;
    let gateway = Watchers::open_timed(&world.gateway.endpoint, &load, &version).await?;
    pods::change(&world.upstream.endpoint, sizes, (0..sizes.changes).map(|change| change % sizes.pods), sizes.rate)
        .await?;
    let events = (sizes.changes * load.watchers) as u64;
    direct.seen(events).await?;
    gateway.seen(events).await?;
    let (mut direct, mut gateway) = (direct.latencies(), gateway.latencies());
    let mut line = |name: String, percent, most| {
        let (direct, gateway) = (percentile(&mut direct, percent), percentile(&mut gateway, percent));
        Line::new(name, "ms", gateway).api_server(Some(direct)).goal(gateway - direct, most, "ms added")
    };
    Ok(vec![
        line(format!("latency of a delivery to {} watchers, p50", load.watchers), 50, 1.0),
        line("the same, p99".to_owned(), 99, 5.0),
    ])
}

/// The value that so many percent of all are not above.
pub(crate) fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((last * percent + 50) / 100).copied().unwrap_or(f64::NAN)
}
