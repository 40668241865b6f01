//! Attacks by reads that would take much of the gateway's CPU.

use anyhow::Result;

use super::{LIST, Scene, Times, connections};
use crate::client::Endpoint;

/// The number of requirements of a selector: as many as fit into the head of a request.
const LONG: usize = 9000;
/// As many as memory evaluates.
const MOST: usize = 64;
/// The minimum number of requests.
const READS: usize = 1200;
const TABLES: usize = 600;
/// The address of these attacks.
const READING: u8 = 100;
/// Twenty megabytes, of which each column of a Table is read from the beginning of an object.
const CONFIG_MAPS: &str = "/api/v1/namespaces/conf/configmaps?resourceVersion=0";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

impl Scene<'_> {
    /// Lists and watches whose selectors have thousands of requirements, or just as many as memory evaluates.
    pub(super) async fn long_selectors(&mut self, quiet: &Times) -> Result<()> {
        let name = "long selectors of one user";
        let [long, most] = [LONG, MOST].map(|count| {
            let absent: Vec<_> = (0..count).map(|number| format!("!k{number}")).collect();
            format!("{LIST}&labelSelector={},no-such-label", absent[1..].join(","))
        });
        let before = self.forwarded("costly_selector").await?;
        let request = move |number: usize| {
            let list = if number.is_multiple_of(2) { &long } else { &most };
            let watch = if number.is_multiple_of(4) { "&watch=1&timeoutSeconds=1" } else { "" };
            (format!("{list}{watch}"), Some("Bearer conformance-keeper".to_owned()))
        };
        self.flood(name, vec![READING], READS, quiet, request).await?;
        let left = self.forwarded("costly_selector").await? - before;
        self.tally.holds(name, left > 0, || "none was left to upstream".to_owned());
        Ok(())
    }

    /// Tables of large objects.
    pub(super) async fn tables(&mut self, quiet: &Times) -> Result<()> {
        let name = "Tables of one user";
        let before = [self.reached("client_read_wait").await?, self.forwarded("unprintable").await?];
        self.victim.accept = TABLE;
        let request = |_| (CONFIG_MAPS.to_owned(), Some("Bearer conformance-keeper".to_owned()));
        let beside = self.flood(name, vec![READING], TABLES, quiet, request).await;
        self.victim.accept = connections::JSON;
        let waited = self.reached("client_read_wait").await? - before[0];
        let forwarded = self.forwarded("unprintable").await? - before[1];
        self.tally.note(format!("{name}: {waited} waited for 30 s, {forwarded} were forwarded"));
        beside
    }

    /// The number of requests that were forwarded for that reason.
    async fn forwarded(&self, reason: &str) -> Result<u64> {
        let metrics = Endpoint::plain(&format!("http://{}", self.admin))?.get("/metrics").await?.text();
        let label = format!("reason=\"{reason}\"");
        let counted = metrics.lines().filter(|line| line.contains(&label));
        Ok(counted.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
    }
}
