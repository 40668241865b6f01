//! Creates, updates, patches and deletions: what the API server does to an object before it is stored.
//!
//! There are no admission, schemas or controllers: a deployment creates no pods, and deleting an object does not delete
//! its dependents.

use std::{sync::Arc, time::SystemTime};

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    crd,
    definition::Definition,
    failure::{Cause, Failure},
    storage::{Storage, Write},
    stored::Stored,
};

/// The part of an object that a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything except the status, if that is a subresource.
    Main,
    Status,
    /// Everything. Used by writes from inside the process only.
    Whole,
}

/// The namespace and the name in the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
}

/// The preconditions of a deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) revision: Option<String>,
}

/// The current time in whole seconds, as in all timestamps of metadata.
pub(crate) fn now() -> String {
    let now = Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH);
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(crate) fn create(
    storage: &Storage,
    definition: &Definition,
    place: Place<'_>,
    mut object: Value,
    part: Part,
) -> Result<Arc<Stored>, Failure> {
    check_body(definition, place, &mut object)?;
    if !is_empty(&object["metadata"], "resourceVersion") {
        return Err(Failure::bad_request("resourceVersion should not be set on objects to be created"));
    }
    if is_empty(&object["metadata"], "name") {
        let Some(prefix) = object["metadata"].get("generateName").and_then(Value::as_str) else {
            return Err(required_name(definition));
        };
        object["metadata"]["name"] = format!("{prefix}{}", random_suffix()).into();
    }
    if let Some(namespace) = object["metadata"].get("namespace").and_then(Value::as_str) {
        check_namespace(storage, namespace)?;
    }
    let status_apart = definition.versions.iter().any(|version| version.status);
    if part == Part::Main && status_apart {
        remove(&mut object, "status");
    }
    let metadata = &mut object["metadata"];
    remove(metadata, "deletionTimestamp");
    metadata["uid"] = uuid::Uuid::new_v4().to_string().into();
    metadata["creationTimestamp"] = now().into();
    if definition.has_generation() {
        metadata["generation"] = 1.into();
    }
    fill_in_defaults(definition, &mut object);
    let (name, key) = name_and_key(&object);
    storage.write(definition, &key, |before| match before {
        Some(_) => Err(Failure::already_exists(definition, &name)),
        None => Ok(Write::Put(object)),
    })
}

/// Replaces an object by the result of `change`.
pub(crate) fn modify(
    storage: &Storage,
    definition: &Definition,
    place: Place<'_>,
    part: Part,
    change: impl FnOnce(&Value) -> Result<Value, Failure>,
) -> Result<Arc<Stored>, Failure> {
    let Place { namespace, name } = place;
    let name = name.unwrap_or_default();
    let key = namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
    storage.write(definition, &key, |before| {
        let before = before.ok_or_else(|| Failure::not_found(definition, name))?;
        let old = before.value(&definition.stored_api_version());
        let mut new = change(&old)?;
        check_body(definition, place, &mut new)?;
        let given = new["metadata"].get("resourceVersion").and_then(Value::as_str).unwrap_or_default();
        if !given.is_empty() && given != before.revision.to_string() {
            return Err(Failure::conflict(definition, name, MODIFIED));
        }
        keep_what_is_not_writable(definition, &old, &mut new, part)?;
        if new == old {
            return Ok(Write::Keep);
        }
        let deleting = new["metadata"].get("deletionTimestamp").is_some();
        Ok(if deleting && !has_finalizers(&new) { Write::Remove } else { Write::Put(new) })
    })
}

/// Removes an object, or marks it for deletion while it has finalizers.
pub(crate) fn delete(
    storage: &Storage,
    definition: &Definition,
    key: &str,
    preconditions: &Preconditions,
) -> Result<Arc<Stored>, Failure> {
    let name = key.rsplit('/').next().unwrap_or(key);
    storage.write(definition, key, |before| {
        let before = before.ok_or_else(|| Failure::not_found(definition, name))?;
        let mut object = before.value(&definition.stored_api_version());
        preconditions.check(definition, &object)?;
        if !has_finalizers(&object) {
            return Ok(Write::Remove);
        }
        let metadata = &mut object["metadata"];
        if metadata.get("deletionTimestamp").is_some() {
            return Ok(Write::Keep);
        }
        metadata["deletionTimestamp"] = now().into();
        metadata["deletionGracePeriodSeconds"] = 0.into();
        Ok(Write::Put(object))
    })
}

impl Preconditions {
    /// Parses the body of a deletion, which may be empty.
    pub(crate) fn parse(options: &Value) -> Self {
        let text = |pointer: &str| options.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Self { uid: text("/preconditions/uid"), revision: text("/preconditions/resourceVersion") }
    }

    fn check(&self, definition: &Definition, object: &Value) -> Result<(), Failure> {
        let wanted = [("UID", "uid", &self.uid), ("ResourceVersion", "resourceVersion", &self.revision)];
        for (word, key, wanted) in wanted {
            let Some(wanted) = wanted else { continue };
            let actual = object["metadata"][key].as_str().unwrap_or_default();
            if actual != wanted {
                let why = format!(
                    "the {word} in the precondition ({wanted}) does not match the {word} in record ({actual}). \
                     The object might have been deleted and then recreated"
                );
                return Err(Failure::conflict(definition, name_and_key(object).0.as_str(), &why));
            }
        }
        Ok(())
    }
}

/// Kind, version and place must match those of the URL; missing ones are filled in.
fn check_body(definition: &Definition, place: Place<'_>, object: &mut Value) -> Result<(), Failure> {
    let text = |object: &Value, key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, api_version) = (text(object, "kind"), text(object, "apiVersion"));
    let known = definition.versions.iter().any(|version| definition.api_version(&version.name) == api_version);
    if (!kind.is_empty() && kind != definition.kind) || (!api_version.is_empty() && !known) {
        return Err(Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {api_version}, Kind={kind}",
            definition.kind
        )));
    }
    object["kind"] = definition.kind.as_str().into();
    object["apiVersion"] = definition.stored_api_version().into();
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    for (key, given) in [("namespace", place.namespace), ("name", place.name)] {
        let own = text(&object["metadata"], key);
        match given {
            Some(given) if own.is_empty() => object["metadata"][key] = given.into(),
            Some(given) if own != *given => {
                return Err(Failure::bad_request(format!(
                    "the {key} of the object ({own}) does not match the {key} on the request ({given})"
                )));
            }
            _ => {}
        }
    }
    if !definition.namespaced {
        remove(&mut object["metadata"], "namespace");
    } else if is_empty(&object["metadata"], "namespace") {
        return Err(Failure::bad_request("an empty namespace may not be set during creation"));
    }
    let name = text(&object["metadata"], "name");
    if name.contains(['/', '%']) || matches!(&*name, "." | "..") {
        return Err(invalid(definition, &name, "FieldValueInvalid", format!("Invalid value: {name:?}: not a name")));
    }
    Ok(())
}

fn keep_what_is_not_writable(definition: &Definition, old: &Value, new: &mut Value, part: Part) -> Result<(), Failure> {
    let status_apart = definition.versions.iter().any(|version| version.status);
    if part == Part::Status {
        let status = new.get("status").cloned();
        *new = old.clone();
        set_or_remove(new, "status", status);
    } else if part == Part::Main && status_apart {
        set_or_remove(new, "status", old.get("status").cloned());
    }
    let given = new["metadata"]["uid"].as_str().unwrap_or_default();
    let uid = old["metadata"]["uid"].as_str().unwrap_or_default();
    if !given.is_empty() && given != uid {
        let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {uid}");
        return Err(Failure::conflict(definition, &name_and_key(old).0, &why));
    }
    let kept = ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"];
    for key in kept.into_iter().chain(["resourceVersion", "generateName", "namespace", "name"]) {
        set_or_remove(&mut new["metadata"], key, old["metadata"].get(key).cloned());
    }
    if definition.has_generation() && without_metadata_and_status(old) != without_metadata_and_status(new) {
        let generation = old["metadata"]["generation"].as_u64().unwrap_or(0);
        new["metadata"]["generation"] = (generation + 1).into();
    }
    Ok(())
}

/// Sets the few defaults that clients and selectors use.
fn fill_in_defaults(definition: &Definition, object: &mut Value) {
    if definition.custom {
        return;
    }
    let name = object["metadata"]["name"].clone();
    match &*definition.plural {
        "pods" => {
            default(&mut object["spec"], "restartPolicy", "Always".into());
            default(&mut object["spec"], "terminationGracePeriodSeconds", 30.into());
            default(&mut object["spec"], "dnsPolicy", "ClusterFirst".into());
            default(&mut object["spec"], "schedulerName", "default-scheduler".into());
            default(object, "status", json!({"phase": "Pending", "qosClass": "BestEffort"}));
        }
        "services" => {
            default(&mut object["spec"], "type", "ClusterIP".into());
            default(object, "status", json!({"loadBalancer": {}}));
        }
        "namespaces" => {
            default(&mut object["metadata"], "labels", json!({}));
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            default(object, "spec", json!({"finalizers": ["kubernetes"]}));
            default(object, "status", json!({"phase": "Active"}));
        }
        "deployments" => {
            default(&mut object["spec"], "replicas", 1.into());
            default(object, "status", json!({}));
        }
        "customresourcedefinitions" => crd::accept(object, &now()),
        _ => {}
    }
}

fn default(parent: &mut Value, key: &str, value: Value) {
    if parent.is_null() {
        *parent = json!({});
    }
    if let Some(parent) = parent.as_object_mut() {
        parent.entry(key).or_insert(value);
    }
}

fn check_namespace(storage: &Storage, namespace: &str) -> Result<(), Failure> {
    let namespaces = storage.definition("", "namespaces").ok_or_else(Failure::unknown_resource)?;
    let known = storage.get(&namespaces, namespace).is_some();
    if known { Ok(()) } else { Err(Failure::not_found(&namespaces, namespace)) }
}

fn required_name(definition: &Definition) -> Failure {
    invalid(definition, "", "FieldValueRequired", "Required value: name or generateName is required".into())
}

fn invalid(definition: &Definition, name: &str, reason: &'static str, message: String) -> Failure {
    let cause = Cause { reason, message, field: "metadata.name".into() };
    Failure::invalid(&definition.kind, &definition.group, name, &[cause])
}

/// A patch that cannot be applied to the object.
pub(crate) fn unfit_patch(why: &str) -> Failure {
    Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", format!("the patch does not fit the object: {why}"))
}

fn name_and_key(object: &Value) -> (String, String) {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default().to_owned();
    let key = metadata.get("namespace").and_then(Value::as_str).map(|namespace| format!("{namespace}/{name}"));
    (name.clone(), key.unwrap_or(name))
}

fn has_finalizers(object: &Value) -> bool {
    object.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|finalizers| !finalizers.is_empty())
}

fn without_metadata_and_status(object: &Value) -> Map<String, Value> {
    let fields = object.as_object().into_iter().flatten();
    let counted = fields.filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status"));
    counted.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn is_empty(parent: &Value, key: &str) -> bool {
    parent.get(key).and_then(Value::as_str).is_none_or(str::is_empty)
}

fn remove(parent: &mut Value, key: &str) {
    parent.as_object_mut().and_then(|parent| parent.shift_remove(key));
}

fn set_or_remove(parent: &mut Value, key: &str, value: Option<Value>) {
    match value {
        Some(value) => parent[key] = value,
        None => remove(parent, key),
    }
}

/// Five characters that form no words, as the API server appends them.
fn random_suffix() -> String {
    let letters = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5).map(|_| char::from(letters[fastrand::usize(..letters.len())])).collect()
}

const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";
