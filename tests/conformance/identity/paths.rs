//! Paths and parameters that different parsers could interpret differently.

/// The users: readers of all pods and of one pod in `conf`, of the pods of one name, and of none.
const WHO: [&str; 4] = [
    "reader | | authorization: Bearer conformance-reader",
    "named | | authorization: Bearer conformance-named",
    "wide | | authorization: Bearer conformance-wide",
    "certificate, outsider | cert-outsider |",
];

/// Requested by each of them.
const PATHS: &str = "
    /api/v1/namespaces/conf/pods/../secrets?resourceVersion=0
    /api/v1/namespaces/conf/pods/%2e%2e/secrets?resourceVersion=0
    /api/v1/namespaces/conf/pods/./pod-00?resourceVersion=0
    /api/v1/namespaces/other/../conf/pods?resourceVersion=0
    /api/v1/namespaces/conf%2Fpods?resourceVersion=0
    /api/v1/namespaces/conf/pods%2Fpod-00?resourceVersion=0
    /api/v1/namespaces/conf/pods%3FresourceVersion=0
    /api/v1/namespaces/conf/pods/pod%2D00?resourceVersion=0
    /api/v1/namespaces/c%6Fnf/secrets?resourceVersion=0
    /api/v1/%6Eamespaces/conf/secrets?resourceVersion=0
    /api/v1/namespaces//pods?resourceVersion=0
    /api/v1/namespaces/conf//pods?resourceVersion=0
    //api/v1/namespaces/conf/pods?resourceVersion=0
    /api//v1/namespaces/conf/pods?resourceVersion=0
    /api/v1/namespaces/conf/pods//pod-00?resourceVersion=0
    /api/v1/namespaces/conf/pods/?resourceVersion=0
    /api/v1/namespaces/conf/pods/pod-00/?resourceVersion=0
    /api/v1/namespaces/conf/pods;x=1?resourceVersion=0
    /api/v1/namespaces/conf/pods?resourceVersion=0;fieldSelector=metadata.name%3Dpod-00
    /api/v1/namespaces/conf/Pods?resourceVersion=0
    /API/v1/namespaces/conf/pods?resourceVersion=0
    /api/v1/Namespaces/conf/pods?resourceVersion=0
    /api/v1/namespaces/CONF/pods?resourceVersion=0
    /api/v1/namespaces/conf/pods/POD-00?resourceVersion=0
    /api/v1/watch/pods?resourceVersion=0&timeoutSeconds=1
    /api/v1/watch/pods/pod-00?resourceVersion=0&timeoutSeconds=1
    /api/v1/watch/pods/pod-00?resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name%3Dpod-00
    /api/v1/watch/pods?resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name%3Dpod-00
    /api/v1/watch/secrets/pod-00?resourceVersion=0&timeoutSeconds=1
    /api/v1/watch/namespaces/conf/pods/pod-00?resourceVersion=0&timeoutSeconds=1
    /api/v1/watch/namespaces/conf/pods/pod-00?resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name%3Dpod-03
    /api/v1/watch/namespaces/conf?resourceVersion=0&timeoutSeconds=1
    /api/v1/pods/pod-00?resourceVersion=0
    /api/v1/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00
    /api/v1/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00,metadata.namespace%3Dconf
    /api/v1/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00&limit=1
    /api/v1/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00&labelSelector=!!
    /api/v1/watch/namespaces/conf/secrets?resourceVersion=0&timeoutSeconds=1
    /api/v1/watch/watch/namespaces/conf/pods?resourceVersion=0&timeoutSeconds=1
    /api/v1/proxy/namespaces/conf/pods?resourceVersion=0
    /api/v1/namespaces/conf/pods/pod-00/secrets?resourceVersion=0
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00&fieldSelector=metadata.name%3Dpod-03
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-03&fieldSelector=metadata.name%3Dpod-00
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00,metadata.name%3Dpod-03
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-03,metadata.name%3Dpod-00
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3D%3Dpod-00
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name!%3Dpod-00
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3D
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00%2Fx
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3D..
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00%5C,x
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=Metadata.Name%3Dpod-00
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldselector=metadata.name%3Dpod-00
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00&labelSelector=!!
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00&timeoutSeconds=x
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00&allowWatchBookmarks=x
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00,spec.nodeName!%3Dx
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00,nonsense%3Dx
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.namespace%3Dother,metadata.name%3Dpod-00
    /api/v1/namespaces/conf/pods?resourceVersion=0&watch=0&fieldSelector=metadata.name%3Dpod-00
    /api/v1/namespaces/conf/pods?resourceVersion=0&watch=false&watch=true
    /api/v1/namespaces/conf/pods?resourceVersion=0&watch=no&timeoutSeconds=1&fieldSelector=metadata.name%3Dpod-00
    /api/v1/namespaces/conf/pods?resourceVersion=0&watch&timeoutSeconds=1&fieldSelector=metadata.name%3Dpod-00
    /api/v1/namespaces/conf/pods/pod-03?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00
    /api/v1/namespaces/conf/pods/pod-03?resourceVersion=0&watch=1&fieldSelector=metadata.name%3Dpod-00
    /api/v1/namespaces/conf/pods?resourceVersion=0&%66ieldSelector=metadata.name%3Dpod-00
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00%00
    /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=%zz
    /api/v1/namespaces/conf/pods?resourceVersion=0&x=%zz&fieldSelector=metadata.name%3Dpod-00
    /api/v1/namespaces/conf?resourceVersion=0&fieldSelector=metadata.name%3Dother
    /api/v1/namespaces/other?resourceVersion=0
    /api/v1/namespaces/conf/status?resourceVersion=0
    /api/v1/namespaces/conf/finalize?resourceVersion=0
    /api/v1/nodes/conf/pods?resourceVersion=0
    /apis/v1/namespaces/conf/pods?resourceVersion=0
    /apis//v1/namespaces/conf/pods?resourceVersion=0
    /apis/core/v1/namespaces/conf/pods?resourceVersion=0
    /api/v2/namespaces/conf/pods?resourceVersion=0
    /healthz/../api/v1/namespaces/conf/secrets?resourceVersion=0
    /version/api/v1/namespaces/conf/secrets?resourceVersion=0
";

/// All combinations of user and path.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let paths = || PATHS.lines().map(str::trim).filter(|path| !path.is_empty());
    WHO.into_iter().flat_map(move |who| paths().map(move |path| (who, path)))
}
