//! The command line: errors about arguments, and the name of a plug-in of kubectl.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use tempfile::TempDir;
use tokio::process::Command;

use crate::{admin::Scene, harness::within};

const BINARY: &str = env!("CARGO_BIN_EXE_kube-fanout");

/// A folder in which commands are run, with a kubeconfig of a server that does not answer.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                          clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
                          contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n";
        fs::create_dir(home.path().join(".kube")).unwrap();
        fs::write(home.path().join(".kube/config"), kubeconfig).unwrap();
        Self(home)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    async fn run(&self, program: impl AsRef<Path>, arguments: &[&str]) -> Output {
        let mut command = Command::new(program.as_ref());
        command.args(arguments).current_dir(self.path()).env("HOME", self.path()).env_remove("KUBECONFIG");
        command.env_remove("KUBERNETES_SERVICE_HOST").kill_on_drop(true);
        within("the end of the command", command.output()).await.unwrap()
    }

    /// Another name of the binary, as a link.
    fn link(&self, name: &str) -> PathBuf {
        let link = self.path().join(name);
        std::os::unix::fs::symlink(BINARY, &link).unwrap();
        link
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The words at the beginning of the indented lines below a heading of a help text.
fn listed(help: &str, heading: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.is_empty());
    lines
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// The options of a command that take a value.
fn options(help: &str) -> Vec<String> {
    let words = help.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut options: Vec<_> = words
        .filter_map(|words| {
            words
                .windows(2)
                .find(|pair| pair[0].starts_with("--") && pair[1].starts_with(['<', '[']))
                .map(|pair| pair[0].to_owned())
        })
        .collect();
    options.dedup();
    options
}

#[tokio::test]
async fn no_argument_of_any_command_shows_a_password() {
    let home = Home::new();
    let help = text(&home.run(BINARY, &["--help"]).await);
    let commands = listed(&help, "Commands:");
    assert!(commands.len() > 6 && commands.contains(&"load".to_owned()), "{help}");
    let mut tried = 0;
    for command in commands.iter().filter(|command| *command != "help") {
        let help = text(&home.run(BINARY, &[command, "--help"]).await);
        // The other required arguments, so that the value is parsed.
        let required: &[&str] = if command == "load" { &["--profile", "controllers"] } else { &[] };
        let options = options(&help);
        for option in options.iter().map(String::as_str).chain(["", "--nonsense"]) {
            for value in ["https://jane:secret@gateway/x", "jane:secret@gateway", "a=http://jane:secret@127.0.0.1:1/m"]
            {
                let required = if required.contains(&option) { &[] } else { required };
                let given = if option.is_empty() { value.to_owned() } else { format!("{option}={value}") };
                for own in [vec![given.as_str()], vec![option, value]] {
                    let arguments = [&[command.as_str()][..], required, &own].concat();
                    let said = text(&home.run(BINARY, &arguments).await);
                    assert!(!said.contains("secret"), "{arguments:?}: {said}");
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 150, "{tried} arguments were tried");
}

#[tokio::test]
async fn as_a_plug_in_of_kubectl_it_is_called_by_that_name() {
    let (home, scene) = (Home::new(), Scene::start(|_| {}).await);
    let plugin = home.link("kubectl-fanout");
    let help = text(&home.run(&plugin, &["status", "--help"]).await);
    assert!(help.contains("\nUsage: kubectl fanout status [OPTIONS]\n"), "{help}");
    let misused = home.run(&plugin, &["status", "--nonsense"]).await;
    let said = text(&misused);
    assert!(misused.status.code() == Some(2) && said.contains("Usage: kubectl fanout status"), "{said}");
    let version = text(&home.run(&plugin, &["--version"]).await);
    assert_eq!(version, format!("kubectl fanout {}\n", env!("CARGO_PKG_VERSION")));
    // Under any other name it is called by its own.
    let help = text(&home.run(BINARY, &["status", "--help"]).await);
    assert!(help.contains("\nUsage: kube-fanout status [OPTIONS]\n"), "{help}");
    let admin = scene.address.to_string();
    let shown = home.run(&plugin, &["status", "--admin", &admin]).await;
    let said = text(&shown);
    assert!(
        shown.status.success() && said.starts_with("gateway   kube-fanout ") && said.contains(", ready,"),
        "{said}"
    );
    let unreachable = home.run(&plugin, &["status", "--admin", "127.0.0.1:1"]).await;
    assert_eq!(unreachable.status.code(), Some(5), "{}", text(&unreachable));
}
