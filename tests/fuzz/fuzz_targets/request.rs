//! A whole request: a line with method and target, and headers, as `name: value`. What memory may answer is what was authorized, and
//! that is what the API server takes the request for.

#![no_main]

use http::{HeaderValue, Request, header};
use kube_fanout::gateway::same_request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|head: &str| {
    let mut lines = head.lines();
    let Some((method, target)) = lines.next().and_then(|line| line.split_once(' ')) else { return };
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        request = request.header(name, value);
    }
    if let Ok(mut request) = request.body(()) {
        // Without one it is refused, which is soon learned.
        request.headers_mut().entry(header::HOST).or_insert(HeaderValue::from_static("localhost"));
        drop(same_request::check(request));
    }
});
