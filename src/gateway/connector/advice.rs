//! What to check if something is wrong between the gateway and the API server.

use super::TroubleKind;

impl TroubleKind {
    /// What is wrong and what to check: for the log, and for the check of a configuration.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Unreachable => {
                "the API server cannot be reached; check its address in the kubeconfig, its proxy, the network on the \
                 way, and what the error says"
            }
            Self::Loop => {
                "the API server's address leads back to this gateway; the kubeconfig has to name the API server itself"
            }
            Self::Foreign => "this does not look like an API server; check its address in the kubeconfig",
            Self::Unanswered => {
                "the API server does not say its version; check its address in the kubeconfig, and whether it is well"
            }
            Self::Unauthorized => {
                "the API server does not accept the gateway's own credentials (401); check the user of the kubeconfig, \
                 or the service account: whether its token or certificate has expired"
            }
            Self::Forbidden => {
                "the gateway's identity may not get /version; give it the right, as system:public-info-viewer does"
            }
        }
    }
}
