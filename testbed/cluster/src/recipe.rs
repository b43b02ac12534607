//! Which programs the proving ground is made of, at which version, and how each is built.
//!
//! A table, nothing else: what runs the Go tool and where the results lie is the builder's affair.

/// Version of the Kubernetes components and of kubectl.
const KUBERNETES: &str = "1.36.3";

/// The Go module that makes one program of etcd and the Kubernetes components, as file name and text. It travels
/// inside this library, so that what is built is always what this library was compiled with.
const KUBE_MODULE: &[(&str, &str)] = &[
    ("go.mod", include_str!("../../go/go.mod")),
    ("go.sum", include_str!("../../go/go.sum")),
    ("main.go", include_str!("../../go/main.go")),
    ("await.go", include_str!("../../go/await.go")),
    ("kubelet.go", include_str!("../../go/kubelet.go")),
    ("machine.go", include_str!("../../go/machine.go")),
];

/// The Go module of the program that is the first process of nodes and pods.
const INIT_MODULE: &[(&str, &str)] =
    &[("go.mod", include_str!("../../init/go.mod")), ("main.go", include_str!("../../init/main.go"))];

/// Something that is built as a whole and asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `kube`: etcd, the Kubernetes components and kubectl in one program; `kubectl`: the same, called by that name.
    Kube,
    /// `kwok`, which plays the nodes that have no kubelet.
    Kwok,
    /// `containerd`, `containerd-shim-runc-v2` and `ctr`, for nodes with a kubelet.
    Containerd,
    /// `helm`.
    Helm,
    /// `init`, the first process of nodes with a kubelet and of their pods.
    Init,
}

/// How a [`Tool`] is built.
pub(crate) struct Recipe {
    /// First part of the cache folder's name.
    pub(crate) name: &'static str,
    /// Version, second part of the cache folder's name.
    pub(crate) version: &'static str,
    /// What is being built, for people.
    pub(crate) what: &'static str,
    /// How long it usually takes on two cores, with nothing downloaded yet.
    pub(crate) usual_time: &'static str,
    /// Files of a module of our own; empty when published packages are installed as they are.
    pub(crate) module: &'static [(&'static str, &'static str)],
    /// What the Go tool is told to build: packages with versions, or `.` for the module of our own.
    pub(crate) packages: &'static [&'static str],
    /// Settings of string variables at link time (`-X`).
    pub(crate) settings: &'static [&'static str],
    /// The programs that must be there afterwards.
    pub(crate) programs: &'static [&'static str],
    /// Further names of programs: (name, program).
    pub(crate) names: &'static [(&'static str, &'static str)],
}

impl Tool {
    /// How this tool is built.
    pub(crate) fn recipe(self) -> &'static Recipe {
        match self {
            Self::Kube => &KUBE,
            Self::Kwok => &KWOK,
            Self::Containerd => &CONTAINERD,
            Self::Helm => &HELM,
            Self::Init => &INIT,
        }
    }
}

// Without the settings every component calls itself `v0.0.0-master+$Format:%H$`.
const KUBE: Recipe = Recipe {
    name: "kube",
    version: KUBERNETES,
    what: "etcd 3.6.13 and Kubernetes 1.36.3",
    usual_time: "6 minutes",
    module: KUBE_MODULE,
    packages: &["."],
    settings: &[
        "k8s.io/component-base/version.gitVersion=v1.36.3",
        "k8s.io/component-base/version.gitMajor=1",
        "k8s.io/component-base/version.gitMinor=36",
        "k8s.io/client-go/pkg/version.gitVersion=v1.36.3",
    ],
    programs: &["kube"],
    names: &[("kubectl", "kube")],
};

// A module of its own by necessity: its dependencies do not compile beside those of Kubernetes 1.36.
const KWOK: Recipe = Recipe {
    name: "kwok",
    version: "0.7.0",
    what: "kwok 0.7.0",
    usual_time: "2 minutes",
    module: &[],
    packages: &["sigs.k8s.io/kwok/cmd/kwok@v0.7.0"],
    settings: &[],
    programs: &["kwok"],
    names: &[],
};

const CONTAINERD: Recipe = Recipe {
    name: "containerd",
    version: "2.4.2",
    what: "containerd 2.4.2",
    usual_time: "1 minute",
    module: &[],
    packages: &[
        "github.com/containerd/containerd/v2/cmd/containerd@v2.4.2",
        "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2@v2.4.2",
        "github.com/containerd/containerd/v2/cmd/ctr@v2.4.2",
    ],
    settings: &["github.com/containerd/containerd/v2/version.Version=v2.4.2"],
    programs: &["containerd", "containerd-shim-runc-v2", "ctr"],
    names: &[],
};

const HELM: Recipe = Recipe {
    name: "helm",
    version: "4.3.2",
    what: "helm 4.3.2",
    usual_time: "1 minute",
    module: &[],
    packages: &["helm.sh/helm/v4/cmd/helm@v4.3.2"],
    settings: &["helm.sh/helm/v4/internal/version.version=v4.3.2"],
    programs: &["helm"],
    names: &[],
};

const INIT: Recipe = Recipe {
    name: "init",
    version: "1",
    what: "the first process of nodes and pods",
    usual_time: "10 seconds",
    module: INIT_MODULE,
    packages: &["."],
    settings: &[],
    programs: &["init"],
    names: &[],
};
