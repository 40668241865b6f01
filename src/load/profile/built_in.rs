//! The built-in profiles: the files of `config/load`, which users can copy and change.

/// Name and text of each profile.
pub const BUILT_IN: [(&str, &str); 6] = [
    ("kubelets", include_str!("../../../config/load/kubelets.yaml")),
    ("daemonsets", include_str!("../../../config/load/daemonsets.yaml")),
    ("controllers", include_str!("../../../config/load/controllers.yaml")),
    ("dashboards", include_str!("../../../config/load/dashboards.yaml")),
    ("restart-storm", include_str!("../../../config/load/restart-storm.yaml")),
    ("burn-in", include_str!("../../../config/load/burn-in.yaml")),
];
