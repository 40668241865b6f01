//! Small watches of an upstream with given changes.

use bytes::Bytes;
use tokio::{join, time::Instant};

use super::*;
use base::apimachinery::ResourceVersion;
use engine::{
    reflector::{ByteStream, ListPage, ListRequest, WatchFrom, WatchRequest},
    store::Shape,
};

/// An upstream at version 90, and the versions of the resource's last changes.
#[derive(Debug, Default)]
struct Upstream {
    changes: Vec<u64>,
    /// Watches that begin before this version have expired.
    oldest: u64,
    /// The versions at which the requested watches began.
    asked: Mutex<Vec<u64>>,
}

const HEAD: u64 = 90;

/// A stream of one piece.
struct Once(Option<Bytes>);

impl ByteStream for Once {
    async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        self.0.take().map(Ok)
    }
}

impl ListWatch for Upstream {
    type Stream = Once;

    async fn watch(&self, request: WatchRequest) -> Result<Once, Failure> {
        let WatchFrom::After(from) = request.from else { return Err(Failure::Refused) };
        self.asked.lock().unwrap().push(from.value());
        // Lets other callers wait meanwhile.
        tokio::task::yield_now().await;
        if from.value() < self.oldest {
            return Err(Failure::Expired);
        }
        let event = |kind: &str, name: &str, version: u64| {
            let metadata = format!(r#"{{{name}"resourceVersion":"{version}"}}"#);
            format!(r#"{{"type":"{kind}","object":{{"kind":"Pod","apiVersion":"v1","metadata":{metadata}}}}}"#) + "\n"
        };
        let changes = self.changes.iter().filter(|version| **version > from.value());
        let name = r#""name":"a","namespace":"ns","#;
        let text: String = changes.map(|version| event("MODIFIED", name, *version)).collect();
        Ok(Once(Some((text + &event("BOOKMARK", "", HEAD)).into())))
    }

    async fn list(&self, _: ListRequest) -> Result<Once, Failure> {
        Err(Failure::Unavailable)
    }

    async fn head(&self) -> Result<ListPage, Failure> {
        Err(Failure::Unavailable)
    }

    async fn knows_fields(&self, _: &[&str]) -> Result<bool, Failure> {
        Err(Failure::Unavailable)
    }

    async fn knows_watch_list(&self) -> Result<bool, Failure> {
        Err(Failure::Unavailable)
    }

    async fn server(&self, _: Instant) -> Option<String> {
        None
    }

    async fn is_same_resource(&self) -> Result<bool, Failure> {
        Err(Failure::Unavailable)
    }
}

/// The results of three concurrent calls, and the versions at which upstream was watched.
async fn asked(versions: [u64; 3], upstream: Upstream) -> ([Option<u64>; 3], Vec<u64>) {
    let (quiet, schema) = (Quiet::default(), Schema::new(Shape::typed("Pod", "v1"), Vec::new()));
    let since = async |version| {
        let version = ResourceVersion::new(version).unwrap();
        quiet.since(version, &upstream, &schema).await.map(ResourceVersion::value)
    };
    let [first, second, third] = versions;
    let (first, second, third) = join!(since(first), since(second), since(third));
    assert!(quiet.waiting().versions.is_empty());
    ([first, second, third], upstream.asked.into_inner().unwrap())
}

#[tokio::test]
async fn one_small_watch_answers_all_callers_with_later_versions() {
    let told = asked([10, 20, 30], Upstream::default()).await;
    assert_eq!(told, ([Some(HEAD); 3], vec![10]));
}

#[tokio::test]
async fn a_caller_with_an_earlier_version_waits_for_the_next_small_watch() {
    let told = asked([20, 10, 30], Upstream::default()).await;
    assert_eq!(told, ([Some(HEAD); 3], vec![20, 10]));
}

#[tokio::test]
async fn only_callers_that_have_every_change_get_the_head_version() {
    let upstream = Upstream { changes: vec![15, 20], ..Upstream::default() };
    assert_eq!(asked([10, 19, 20], upstream).await, ([None, None, Some(HEAD)], vec![10]));
}

#[tokio::test]
async fn an_expired_version_does_not_fail_callers_with_later_versions() {
    let upstream = Upstream { oldest: 25, ..Upstream::default() };
    assert_eq!(asked([10, 20, 30], upstream).await, ([None, None, Some(HEAD)], vec![10, 20, 30]));
}
