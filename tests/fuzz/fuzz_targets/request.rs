//! A whole request: a line with method and target, and headers as `name: value`. The request that is answered from
//! memory is the request that was authorized, and the API server would parse it in the same way.

#![no_main]

use http::{HeaderValue, Request, header};
use kube_fanout::handler::same_request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|head: &str| {
    let mut lines = head.lines();
    let Some((method, target)) = lines.next().and_then(|line| line.split_once(' ')) else { return };
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        request = request.header(name, value);
    }
    if let Ok(mut request) = request.body(()) {
        // A request without `Host` is refused; the fuzzer would spend its time on these.
        request.headers_mut().entry(header::HOST).or_insert(HeaderValue::from_static("localhost"));
        drop(same_request::check(request));
    }
});
