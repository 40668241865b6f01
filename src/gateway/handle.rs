//! The request path on one screen.

use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;

use super::{
    Body,
    body::Inner,
    record::Record,
    respond,
    route::{self, ReadVerb, Route},
};
use crate::{
    apimachinery::{Encoding, GroupVersionResource, Representation, RequestInfo, View},
    authn::{Authenticator, Credentials},
    authz,
    cacher::{Cachers, Instance, NotCached},
    forward::Forward,
    listener::{Connection, Handler},
    serve::{self, ForwardReason, Read},
    telemetry::{Outcome, RequestMetrics},
};

/// Answers every request, from memory or from upstream. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gateway {
    authenticator: Authenticator,
    cachers: Cachers,
    forward: Forward,
    config: serve::Config,
    metrics: RequestMetrics,
}

impl Gateway {
    /// Believes `authenticator`, answers from `cachers` where it can, through `forward` else.
    pub fn new(authenticator: Authenticator, cachers: Cachers, forward: Forward, config: serve::Config) -> Self {
        Self { authenticator, cachers, forward, config, metrics: RequestMetrics::new() }
    }

    /// Answers from memory, if that is certainly what upstream would have answered.
    async fn serve(
        &self,
        request: &Request<Incoming>,
        info: &RequestInfo,
        credentials: &Credentials,
    ) -> Result<Response<serve::Body>, ForwardReason> {
        let Route { verb, target, forms } = route::decide(request, info)?;
        let permit = authz::authorize_trusted(credentials).ok_or(ForwardReason::Unauthorized)?;
        let (instance, form) = self.find(&target.resource, &forms)?;
        let query = request.uri().query();
        let read = Read { request: target, query, headers: request.headers(), instance, form, config: self.config };
        match verb {
            ReadVerb::Get => serve::get(&read, &permit).await,
            ReadVerb::List => serve::list(&read, &permit).await,
            ReadVerb::Watch => serve::watch(&read, &permit).await,
        }
    }

    /// The store that has the first of `forms` that the resource has.
    fn find(
        &self,
        resource: &GroupVersionResource,
        forms: &[Representation],
    ) -> Result<(Arc<Instance>, Representation), ForwardReason> {
        for &form in forms {
            match self.cachers.find(resource, form.encoding) {
                Ok(instance) => return Ok((instance, form)),
                // Their metadata has, and it is made from JSON.
                Err(NotCached::NotInProtobuf) if form.view != View::Whole => {
                    return Ok((self.cachers.find(resource, Encoding::Json)?, form));
                }
                Err(NotCached::NotInProtobuf) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Err(ForwardReason::Representation)
    }
}

impl Handler for Gateway {
    type Body = Body;

    /// When the client goes, this future is dropped: reads end, forwarded requests are cancelled upstream.
    async fn handle(&self, mut request: Request<Incoming>, connection: &Connection) -> Response<Body> {
        let uri = request.uri().clone();
        let info = RequestInfo::parse(request.method(), uri.path(), uri.query());
        let record = Record::start(&request, &info, self.metrics.clone());
        let certificate = connection.client_certificate.as_deref();
        let credentials = self.authenticator.credentials(request.headers_mut(), certificate);

        match self.serve(&request, &info, &credentials).await {
            Ok(answer) => Body::answer(record, (Outcome::Served, None), answer.map(Inner::Served)),
            Err(why) => match self.forward.send(request, &credentials, connection.peer.map(|peer| peer.ip())).await {
                Ok(answer) => {
                    Body::answer(record, (Outcome::Forwarded, Some(why.as_str())), answer.map(Inner::Forwarded))
                }
                Err(error) => {
                    let answer = respond::error(&error).map(Inner::Rejected);
                    Body::answer(record, (Outcome::Rejected, Some(error.as_str())), answer)
                }
            },
        }
    }
}
