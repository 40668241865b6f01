//! From request to response: path, representation, options, then the verb, with errors in the API server's order
//! (read-path 1.0).

use std::{future::pending, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};

use base::apimachinery::{FieldSelector, LabelSelector};

use crate::{
    Simulation,
    body::Body,
    definition::Definition,
    discovery,
    failure::Failure,
    negotiate, openapi,
    options::Parameters,
    patch::Patch,
    path::{Path, Target},
    read::{self, Cache},
    reply::{Reply, Style},
    select::Selection,
    servers::Server,
    shapes::{list::Page, representation::Representation},
    shards::Shards,
    stored::Stored,
    watch::{Format, Started, WatchStream},
    write::{self, Part, Place, Preconditions},
};

/// What a 415 names as supported. Clients cannot fall back to JSON by themselves: kubectl sends protobuf for
/// `create KIND`, and JSON for commands that read a file.
const ONLY_JSON: &str = "application/json (the embedded server reads nothing else; with kubectl, append \
                         --dry-run=client -o yaml and pipe that into: kubectl apply -f -)";

/// The maximum size of a request body in bytes, as in an API server.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Answers one request. Dropping the future, or the body of a watch, ends it.
pub(crate) async fn answer<B>(simulation: &Arc<Simulation>, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static>,
{
    let (parts, body) = request.into_parts();
    let parameters = Parameters::parse(parts.uri.query());
    let style = Style::new(&parts.headers, &parameters);
    let path = Path::parse(parts.uri.path());
    let reply = if let Path::Resource(target) = path {
        Call::answer(simulation, &parts, &parameters, &target, body).await
    } else {
        simulation.census.count("get", parts.uri.path());
        if simulation.faults.is_swallowed("get", parts.uri.path()) {
            pending::<()>().await;
        }
        match simulation.faults.refused("get", parts.uri.path()) {
            Some(failure) => Err(failure),
            None => Ok(document(simulation, parts.extensions.get().copied(), &path, &parts.headers)),
        }
    };
    reply.unwrap_or_else(|failure| Reply::failure(&failure)).into_response(&style)
}

/// Answers paths that are not resources.
fn document(simulation: &Simulation, server: Option<Server>, path: &Path, headers: &HeaderMap) -> Reply {
    let features = simulation.faults.features();
    let definitions = simulation.storage.definitions();
    let aggregated = features.aggregated_discovery && negotiate::aggregated_discovery(headers);
    let found = match path {
        Path::CoreVersions | Path::Groups if !features.root_discovery => None,
        Path::CoreVersions | Path::Groups if aggregated => {
            return Reply::aggregated_discovery(&discovery::aggregated(&definitions, *path == Path::CoreVersions));
        }
        Path::CoreVersions => Some(discovery::core_versions()),
        Path::Groups => Some(discovery::groups(&definitions)),
        Path::Group(group) => discovery::group(&definitions, group),
        Path::GroupVersion { group, version } => discovery::resources(&definitions, group, version),
        Path::OpenApi => Some(openapi::index(&definitions)),
        Path::OpenApiOf { group, version } => openapi::document(&definitions, group, version),
        Path::Version => {
            let own = simulation.servers.git_version(server);
            Some(version(&own.unwrap_or_else(|| simulation.faults.git_version())))
        }
        Path::Health => return Reply::text(StatusCode::OK, "ok"),
        Path::Resource(_) | Path::Unknown => None,
    };
    found.map_or_else(Reply::page_not_found, |document| Reply::json(StatusCode::OK, &document))
}

fn version(git_version: &str) -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": git_version, "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "",
    })
}

/// A request for a resource.
struct Call<'a> {
    simulation: &'a Arc<Simulation>,
    /// The server behind the address that answers; `None` for a request without a connection.
    server: Option<Server>,
    definition: Arc<Definition>,
    target: &'a Target,
    parameters: &'a Parameters,
    headers: &'a HeaderMap,
    representation: Representation,
    part: Part,
}

impl<'a> Call<'a> {
    async fn answer<B>(
        simulation: &'a Arc<Simulation>,
        parts: &'a Parts,
        parameters: &'a Parameters,
        target: &'a Target,
        body: B,
    ) -> Result<Reply, Failure>
    where
        B: http_body::Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static>,
    {
        let verb = target.verb(&parts.method, parameters.flag("watch") == Some(true));
        let Some(definition) = simulation.storage.definition(&target.group, &target.plural) else {
            // A client may also be refused access to a resource that does not exist.
            let resource = format!("{}.{}", target.plural, target.group);
            let refused = simulation.faults.ungranted(target.namespace.as_deref());
            let refused = refused.or_else(|| simulation.faults.refused(verb, &resource));
            return refused.map_or_else(|| Self::unknown(simulation, target), Err);
        };
        let resource = definition.group_resource().to_string();
        simulation.census.count(verb, &resource);
        if simulation.faults.is_swallowed(verb, &resource) {
            pending::<()>().await;
        }
        simulation.faults.released(verb, &resource).await;
        let ungranted = simulation.faults.ungranted(target.namespace.as_deref());
        if let Some(failure) = ungranted.or_else(|| simulation.faults.refused(verb, &resource)) {
            return Err(failure);
        }
        let Some(version) = definition.version(&target.version) else {
            return Self::unknown(simulation, target);
        };
        // Built-in types have no such paths; for custom resources they are watches of a name in all namespaces.
        let lacks_namespace = definition.namespaced && target.namespace.is_none() && target.name.is_some();
        if lacks_namespace && (!definition.custom || verb != "watch") {
            return Err(Failure::unknown_resource());
        }
        let part = match target.subresource.as_deref() {
            None => Part::Main,
            Some("status") if version.status => Part::Status,
            Some(_) if definition.custom => {
                return Err(Failure::not_found(&definition, target.name.as_deref().unwrap_or_default()));
            }
            Some(_) => return Err(Failure::unknown_resource()),
        };
        let headers = &parts.headers;
        let include = parameters.text("includeObject");
        let representation =
            negotiate::representation(headers, &definition, include, target.name.is_some(), verb == "list")?;
        let warning = version.deprecation.clone();
        let server = parts.extensions.get().copied();
        let call = Self { simulation, server, definition, target, parameters, headers, representation, part };
        let reply = match verb {
            "get" => call.get().await,
            "list" => call.list().await,
            "watch" => call.watch().await,
            "" => Err(Failure::method_not_allowed(Some((&call.definition, "")))),
            _ => {
                let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
                let body = body.map_err(|error| Failure::bad_request(error.to_string()))?.to_bytes();
                call.write(verb, &body)
            }
        };
        reply.map(|reply| reply.with_warning(warning))
    }

    /// Groups of built-in types have their own 404; for all others, the API server's mux answers.
    fn unknown(simulation: &Simulation, target: &Target) -> Result<Reply, Failure> {
        let definitions = simulation.storage.definitions();
        let built_in = definitions.iter().any(|definition| !definition.custom && definition.group == target.group);
        if built_in { Err(Failure::unknown_resource()) } else { Ok(Reply::page_not_found()) }
    }

    fn selection(&self, labels: LabelSelector, fields: FieldSelector) -> Result<Selection, Failure> {
        let has_shards = self.simulation.faults.features().shards;
        let shards = if has_shards { Shards::parse(self.parameters.text("shardSelector"))? } else { None };
        Ok(Selection::new(&self.definition, self.target, labels, fields)?.within(shards))
    }

    fn cache(&self) -> Cache<'a> {
        Cache { simulation: self.simulation, server: self.server }
    }

    async fn get(&self) -> Result<Reply, Failure> {
        let object = read::get(self.cache(), &self.definition, self.target, self.parameters).await?;
        Ok(self.object(StatusCode::OK, self.written(object)))
    }

    async fn list(&self) -> Result<Reply, Failure> {
        let options = self.parameters.list()?;
        let selection = self.selection(options.labels.clone(), options.fields.clone())?;
        let shards = selection.shards();
        let mut page = read::list(self.cache(), &self.definition, selection, options).await?;
        page.shards = shards.filter(|_| !self.definition.custom && self.representation == Representation::Json);
        page.objects = page.objects.into_iter().map(|object| self.written(object)).collect();
        // As 1.20 does.
        if matches!(self.representation, Representation::Metadata(_)) && !self.simulation.faults.features().watch_list {
            page.remaining = None;
        }
        Ok(self.page(&page))
    }

    async fn watch(&self) -> Result<Reply, Failure> {
        let features = self.simulation.faults.features();
        let bare_path = self.target.watch_prefix && self.parameters.flag("watch") != Some(true);
        let mut options = self.parameters.watch(features.watch_list, bare_path)?;
        let (labels, fields) = (std::mem::take(&mut options.labels), std::mem::take(&mut options.fields));
        let selection = self.selection(labels, fields)?;
        let format = Format {
            definition: self.definition.clone(),
            api_version: self.api_version(),
            representation: self.representation,
        };
        Ok(match WatchStream::start(self.simulation, self.server, format, selection, &options).await? {
            Started::Stream(stream) => Reply::watch(stream),
            Started::Error(failure) => Reply::error_event(&failure),
        })
    }

    fn write(&self, verb: &str, body: &[u8]) -> Result<Reply, Failure> {
        if !self.parameters.text("dryRun").is_empty() {
            return Err(Failure::bad_request("the embedded server knows no dry run"));
        }
        let place = Place { namespace: self.target.namespace.as_deref(), name: self.target.name.as_deref() };
        let (storage, definition) = (&self.simulation.storage, &*self.definition);
        match verb {
            "create" => {
                let object = self.decode(body)?;
                let created = write::create(storage, definition, place, object, self.part)?;
                Ok(self.object(StatusCode::CREATED, created))
            }
            "update" => {
                let object = self.decode(body)?;
                let updated = write::modify(storage, definition, place, self.part, |_| Ok(object))?;
                Ok(self.object(StatusCode::OK, updated))
            }
            "patch" => {
                let patch = Patch::parse(definition, &self.content_type(), body)?;
                let patched = write::modify(storage, definition, place, self.part, |object| patch.apply(object))?;
                Ok(self.object(StatusCode::OK, patched))
            }
            "delete" => {
                let options = if body.is_empty() { Value::Null } else { self.decode(body)? };
                let key = self.target.key().unwrap_or_default();
                let deleted = write::delete(storage, definition, &key, &Preconditions::parse(&options))?;
                Ok(self.deleted(deleted))
            }
            _ => self.delete_collection(),
        }
    }

    fn delete_collection(&self) -> Result<Reply, Failure> {
        let options = self.parameters.list()?;
        let selection = Selection::new(&self.definition, self.target, options.labels, options.fields)?;
        let storage = &self.simulation.storage;
        let view = storage.view(&self.definition);
        let mut objects = Vec::new();
        for object in view.objects.iter().filter(|object| selection.matches(object)) {
            // Another request may have deleted the object already.
            if let Ok(deleted) = write::delete(storage, &self.definition, &object.key, &Preconditions::default()) {
                objects.push(deleted);
            }
        }
        let revision = storage.revision();
        Ok(self.page(&Page { revision, objects, ..Page::default() }))
    }

    fn decode(&self, body: &[u8]) -> Result<Value, Failure> {
        if !matches!(&*self.content_type(), "" | "application/json") {
            return Err(Failure::unsupported_media_type(ONLY_JSON));
        }
        serde_json::from_slice(body).ok().filter(Value::is_object).ok_or_else(|| {
            let text = String::from_utf8_lossy(body);
            Failure::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): couldn't get version/kind; \
                 json parse error: unexpected end of JSON input ({text})",
                self.definition.kind
            ))
        })
    }

    /// The `Content-Type` without its parameters.
    fn content_type(&self) -> String {
        let text = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    fn api_version(&self) -> String {
        self.definition.api_version(&self.target.version)
    }

    /// The object as this server writes it.
    fn written(&self, object: Arc<Stored>) -> Arc<Stored> {
        self.simulation.servers.written_by(self.server, &self.definition, object)
    }

    fn object(&self, code: StatusCode, object: Arc<Stored>) -> Reply {
        Reply::compact(code, self.representation.object(&self.definition, &self.api_version(), object))
    }

    fn page(&self, page: &Page) -> Reply {
        Reply::compact(StatusCode::OK, self.representation.page(&self.definition, &self.api_version(), page))
    }

    /// A deleted pod is returned as it was, and so is an object that still has finalizers; for all others, only the
    /// name is returned.
    fn deleted(&self, object: Arc<Stored>) -> Reply {
        let remains = self.simulation.storage.get(&self.definition, &object.key).is_some();
        if remains || self.definition.plural == "pods" {
            return self.object(StatusCode::OK, object);
        }
        let mut details = json!({"name": object.name()});
        if !self.definition.group.is_empty() {
            details["group"] = self.definition.group.as_str().into();
        }
        details["kind"] = self.definition.plural.as_str().into();
        details["uid"] = object.value("")["metadata"]["uid"].clone();
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
        Reply::json(StatusCode::OK, &status)
    }
}
