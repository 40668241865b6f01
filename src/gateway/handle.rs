//! The request path on one screen.

use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;

use super::{
    Body,
    admission::{AcceptedHosts, Refusal},
    body::Inner,
    record::Record,
    respond,
    route::{self, ReadVerb, Route},
};
use crate::{
    apimachinery::{Encoding, GroupVersionResource, Representation, RequestInfo, View},
    authn::{Authenticator, Credentials, Unauthenticated},
    authz::{Attributes, Authorizer, Permit},
    cacher::{Cachers, Instance, NotCached},
    forward::Forward,
    listener::{self, Connection, Handler},
    serve::{self, ForwardReason, Read},
    telemetry::{Outcome, RequestMetrics},
};

/// Answers every request, from memory or from upstream. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gateway {
    hosts: AcceptedHosts,
    authenticator: Authenticator,
    authorizer: Authorizer,
    cachers: Cachers,
    forward: Forward,
    config: serve::Config,
    metrics: RequestMetrics,
}

impl Gateway {
    /// Goes by the names of `hosts`, believes `authenticator`, answers from `cachers` where it can and `authorizer` permits,
    /// through `forward` else.
    pub fn new(
        hosts: AcceptedHosts,
        authenticator: Authenticator,
        authorizer: Authorizer,
        cachers: Cachers,
        forward: Forward,
        config: serve::Config,
    ) -> Self {
        Self { hosts, authenticator, authorizer, cachers, forward, config, metrics: RequestMetrics::new() }
    }

    /// Before anything else looks at a request.
    fn admit<B>(&self, request: &Request<B>, connection: &Connection) -> Result<(), Refusal> {
        listener::check_form(request).map_err(Refusal::Malformed)?;
        self.hosts.check(request, connection.peer)
    }

    /// Answers from memory, if that is certainly what upstream would have answered.
    async fn serve(
        &self,
        request: &Request<Incoming>,
        info: &RequestInfo,
        credentials: &Credentials,
    ) -> Result<Response<serve::Body>, ForwardReason> {
        let Route { verb, target, forms } = route::decide(request, info)?;
        let attributes = || Attributes::of(info.verb, target, request.uri().query());
        let permit = self.permit(credentials, attributes).await?;
        let (instance, form) = self.find(&target.resource, &forms)?;
        let query = request.uri().query();
        let read = Read { request: target, query, headers: request.headers(), instance, form, config: self.config };
        match verb {
            ReadVerb::Get => serve::get(&read, permit).await,
            ReadVerb::List => serve::list(&read, permit).await,
            ReadVerb::Watch => serve::watch(&read, permit).await,
        }
    }

    /// Leave to answer from memory what the attributes say.
    async fn permit(
        &self,
        credentials: &Credentials,
        attributes: impl FnOnce() -> Attributes,
    ) -> Result<Permit, ForwardReason> {
        if credentials.impersonates() {
            return Err(ForwardReason::Impersonated);
        }
        if let Credentials::Gateway { .. } = credentials {
            return Ok(self.authorizer.authorize_gateway()?);
        }
        let user = self.authenticator.user(credentials).await.map_err(|why| match why {
            Unauthenticated::Impersonates => ForwardReason::Impersonated,
            Unauthenticated::Nobody | Unauthenticated::Rejected => ForwardReason::Unauthenticated,
            Unauthenticated::Unavailable => ForwardReason::NoVerdict,
        })?;
        Ok(self.authorizer.authorize(user, attributes()).await?)
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
        if let Err(refusal) = self.admit(&request, connection) {
            let answer = respond::refusal(refusal).map(Inner::Rejected);
            return Body::answer(record, (Outcome::Rejected, Some(refusal.as_str())), answer);
        }
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
