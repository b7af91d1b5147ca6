package brake

import "k8s.io/apimachinery/pkg/types"

// An Identity is a control plane as one node sees it. Unknown parts are empty.
type Identity struct {
	Cluster types.UID `json:"cluster,omitempty"` // of the Service default/kubernetes
	Node    types.UID `json:"node,omitempty"`    // of the Node; empty in an answer: it does not exist
	Epoch   int       `json:"epoch,omitempty"`   // (*history.History).Epoch
}

// differs returns how the identity changed; empty: it did not.
func (before Identity) differs(now Identity) string {
	switch {
	case before.Cluster != "" && now.Cluster != "" && before.Cluster != now.Cluster:
		return "this is a different cluster than before"
	case before.Node != "" && now.Node == "":
		return "the Node of this machine was deleted"
	case before.Node != "" && before.Node != now.Node:
		return "the Node of this machine was deleted and created again"
	case before.Epoch != now.Epoch:
		return "the cluster's data are older than the data this node has seen, as after a restore from a backup"
	}
	return ""
}

// merge returns now, with unknown parts filled in from before.
func (before Identity) merge(now Identity) Identity {
	if now.Cluster == "" {
		now.Cluster = before.Cluster
	}
	if now.Node == "" {
		now.Node = before.Node
	}
	return now
}

// A Scene is a list of the API server that lacks pods.
type Scene struct {
	Known    Identity // at the last accepted list
	Now      Identity
	Running  int       // pods of the API server that are to run, without those being deleted
	Vanished int       // how many of them the list lacks, including those on hold
	Held     bool      // a hold exists
	Seen     *Identity // the identity at which the hold was judged; nil: not judged yet
}

// A Verdict decides about the pods that vanished.
type Verdict int

// Verdicts.
const (
	EndAll     Verdict = iota // they were deleted
	HoldAll                   // the control plane lost them
	HoldFormer                // keep the existing hold; all other missing pods were deleted
)

// String names a verdict.
func (v Verdict) String() string { return [...]string{"end all", "hold all", "hold former"}[v] }

// Judge decides about a list. why is the reason of a hold. Judge is a pure function.
func Judge(s Scene) (v Verdict, why string) {
	why = s.Known.differs(s.Now)
	switch {
	case s.Vanished == 0 || why == "":
		return EndAll, ""
	case s.Held && s.Seen != nil && *s.Seen == s.Now:
		// This control plane's own pods come and go as it says.
		return HoldFormer, why
	case s.Now.Node == "" && s.Known.Node != "": // the node registers again, and then the list is judged again
		return HoldAll, why
	case mostVanished(s.Vanished, s.Running):
		return HoldAll, why
	}
	return EndAll, ""
}

// mostVanished reports whether so many pods vanished that a deletion by hand is unlikely.
func mostVanished(vanished, running int) bool {
	return vanished > 0 && (vanished >= running || vanished >= 3 && 2*vanished >= running)
}
