//! The part of a collection that an informer follows, as a path and as a predicate.

use std::collections::BTreeMap;

use kube_fanout::{apimachinery::GroupResource, sim::Sim};
use serde_json::Value;

/// Objects by `namespace/name`, without the kind, which lists leave out.
pub(crate) type Objects = BTreeMap<String, Value>;

/// Part of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    resource: GroupResource,
    version: String,
    namespace: Option<String>,
    /// The value of the label `app`.
    app: Option<String>,
    /// The value of the field `spec.nodeName`.
    node: Option<String>,
    name: Option<String>,
    /// Whether the client only asks for the objects' metadata.
    is_metadata: bool,
}

impl Selection {
    pub(crate) fn all(group: &str, resource: &str) -> Self {
        let resource = GroupResource { group: group.into(), resource: resource.into() };
        Self {
            resource,
            version: "v1".to_owned(),
            namespace: None,
            app: None,
            node: None,
            name: None,
            is_metadata: false,
        }
    }

    pub(crate) fn pods() -> Self {
        Self::all("", "pods")
    }

    pub(crate) fn in_namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }

    pub(crate) fn of_app(self, app: &str) -> Self {
        Self { app: Some(app.to_owned()), ..self }
    }

    pub(crate) fn on_node(self, node: &str) -> Self {
        Self { node: Some(node.to_owned()), ..self }
    }

    pub(crate) fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    #[allow(dead_code, reason = "only the simulation has such informers")]
    pub(crate) fn of_metadata(self) -> Self {
        Self { is_metadata: true, ..self }
    }

    #[allow(dead_code, reason = "only the simulation has such informers")]
    pub(crate) fn is_metadata(&self) -> bool {
        self.is_metadata
    }

    /// Whether an object may leave it and come back.
    pub(crate) fn is_by_label(&self) -> bool {
        self.app.is_some()
    }

    /// The `Accept` header of a client that lists the selection.
    #[allow(dead_code, reason = "only the simulation has such informers")]
    pub(crate) fn accept_list(&self) -> &'static str {
        if self.is_metadata {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        } else {
            "application/json"
        }
    }

    /// The `Accept` header of a client that watches the selection.
    #[allow(dead_code, reason = "only the simulation has such informers")]
    pub(crate) fn accept_watch(&self) -> &'static str {
        if self.is_metadata {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        } else {
            "application/json"
        }
    }

    /// The path with these parameters besides those of the selection.
    pub(crate) fn path(&self, parameters: &str) -> String {
        let GroupResource { group, resource } = &self.resource;
        let version = &self.version;
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let namespace = self.namespace.as_ref().map(|namespace| format!("/namespaces/{namespace}"));
        let fields = [("spec.nodeName", &self.node), ("metadata.name", &self.name)];
        let fields =
            fields.iter().filter_map(|(field, value)| value.as_ref().map(|value| format!("{field}%3D{value}")));
        let mut path = format!("{root}{}/{resource}?{parameters}", namespace.unwrap_or_default());
        let fields: Vec<_> = fields.collect();
        if !fields.is_empty() {
            path += &format!("&fieldSelector={}", fields.join(","));
        }
        if let Some(app) = &self.app {
            path += &format!("&labelSelector=app%3D{app}");
        }
        path
    }

    /// The selected objects upstream.
    pub(crate) fn expected(&self, sim: &Sim) -> Objects {
        let objects = sim.objects(&self.resource).unwrap();
        objects.into_iter().filter(|object| self.matches(object)).map(|object| self.entry(object)).collect()
    }

    /// An object as an entry of [`Objects`], as far as the client asks for it.
    pub(crate) fn entry(&self, object: Value) -> (String, Value) {
        let (key, mut object) = entry(object);
        if self.is_metadata {
            object.as_object_mut().unwrap().retain(|member, _| member == "metadata");
        }
        (key, object)
    }

    /// The objects of a list.
    pub(crate) fn entries(&self, list: &Value) -> Vec<(String, Value)> {
        // An empty list of metadata has `null`.
        list["items"].as_array().into_iter().flatten().map(|object| self.entry(object.clone())).collect()
    }

    fn matches(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let is = |wanted: &Option<String>, found: &Value| wanted.as_ref().is_none_or(|wanted| found == wanted);
        is(&self.namespace, &metadata["namespace"])
            && is(&self.app, &metadata["labels"]["app"])
            && is(&self.node, &object["spec"]["nodeName"])
            && is(&self.name, &metadata["name"])
    }
}

/// An object as an entry of [`Objects`], without what depends on the API server's program.
fn entry(mut object: Value) -> (String, Value) {
    let metadata = &object["metadata"];
    let text = |key: &str| metadata[key].as_str().unwrap_or_default();
    let key = format!("{}/{}", text("namespace"), text("name"));
    object["metadata"].as_object_mut().unwrap().retain(|member, _| member != "annotations");
    let members = object.as_object_mut().unwrap();
    members.remove("kind");
    members.remove("apiVersion");
    (key, object)
}
