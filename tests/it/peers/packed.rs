//! States that come as they are kept.

use super::{Fake, QUESTION, assert_refused, assert_same, fills, first, raw, second, whole};
use crate::{delegated::PODS, harness::World};

const PACKED: &str = "kube-fanout-state-format: 4";

/// What the first gateway answers a peer that reads states as they are kept: the head of the response without what says
/// how long the body is, and the records, each behind its length and its checksum.
async fn packed(world: &World) -> (String, Vec<Vec<u8>>) {
    let question = format!("{QUESTION}\r\n{PACKED}");
    let response = raw(world.client().address(), &format!("GET {PODS}"), &question).await;
    let end = response.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(response[..end].to_owned()).unwrap();
    let (mut body, mut records) = (&whole(&head, &response[end + 4..])[..], Vec::new());
    while let Some(length) = body.first_chunk() {
        let (record, rest) = body.split_at(8 + u32::from_le_bytes(*length) as usize);
        records.push(record.to_owned());
        body = rest;
    }
    let head: Vec<_> = head.lines().filter(|line| !line.starts_with("transfer-encoding:")).collect();
    (head.join("\r\n"), records)
}

#[tokio::test]
async fn a_peer_s_state_comes_as_it_is_kept_if_both_have_the_format() {
    let world = first().await;
    let (head, records) = packed(&world).await;
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains(&format!("\r\n{PACKED}")), "{head}");
    assert_eq!(records.len(), 2, "the head of the state, and one run of objects");
    let peer = Fake::start(Some([head.as_bytes(), b"\r\n\r\n", &records.concat()].concat())).await;
    let filled = fills("pods", "peer");
    let gateway = second(&world, &peer.url).await;
    assert_same(&world, gateway.client.get(PODS).await, PODS).await;
    assert!(fills("pods", "peer") > filled);
    // Whoever reads another format, or wants something else, gets a list.
    let another = "kube-fanout-state-format: 2".to_owned();
    let partly = "?resourceVersion=0&labelSelector=app%3Dx";
    let metadata = "accept: application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    for (path, header) in [
        (PODS.to_owned(), format!("{QUESTION}\r\n{another}")),
        (format!("/api/v1/pods{partly}"), format!("{QUESTION}\r\n{PACKED}")),
        ("/api/v1/namespaces/default/pods?resourceVersion=0".to_owned(), format!("{QUESTION}\r\n{PACKED}")),
        (PODS.to_owned(), format!("{QUESTION}\r\n{PACKED}\r\n{metadata}")),
    ] {
        let answer = raw(world.client().address(), &format!("GET {path}"), &header).await;
        let answer = String::from_utf8(answer).unwrap();
        let is_list = answer.contains("List\",") && answer.contains("\"name\":\"c\"");
        let is_packed = answer.contains("kube-fanout-state-format");
        assert!(answer.starts_with("HTTP/1.1 200 ") && is_list && !is_packed, "{path} {header}: {answer}");
    }
}

#[tokio::test]
async fn a_kept_state_of_a_peer_that_is_damaged_is_refused() {
    let world = first().await;
    let (head, records) = packed(&world).await;
    let answer = |records: &[&[u8]]| Some([head.as_bytes(), b"\r\n\r\n", &records.concat()].concat());
    let [first, run] = &records[..] else { panic!("{} records", records.len()) };
    assert_refused(&world, answer(&[first, &run[..run.len() / 2]]), PODS, "broken").await;
    assert_refused(&world, answer(&[first, &run[..4]]), PODS, "broken").await;
    assert_refused(&world, answer(&[first]), PODS, "malformed").await;
    assert_refused(&world, answer(&[]), PODS, "malformed").await;
    assert_refused(&world, answer(&[first, run, run]), PODS, "malformed").await;
    assert_refused(&world, answer(&[run, first]), PODS, "malformed").await;
    let mut damaged = run.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert_refused(&world, answer(&[first, &damaged]), PODS, "malformed").await;
    assert_refused(&world, answer(&[first, b"\xff\xff\xff\xff\0\0\0\0"]), PODS, "malformed").await;
}
