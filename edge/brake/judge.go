package brake

import "k8s.io/apimachinery/pkg/types"

// An Identity identifies the control plane of one node. Empty fields are not known.
type Identity struct {
	Cluster types.UID `json:"cluster,omitempty"` // UID of the Service default/kubernetes
	Node    types.UID `json:"node,omitempty"`    // UID of the Node; empty in a read identity if the Node does not exist
	Epoch   int       `json:"epoch,omitempty"`   // (*history.History).Epoch
}

// differs returns the difference between two identities as a sentence. It is empty if they are the same.
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

// merge returns now, with its empty fields set from before.
func (before Identity) merge(now Identity) Identity {
	if now.Cluster == "" {
		now.Cluster = before.Cluster
	}
	if now.Node == "" {
		now.Node = before.Node
	}
	return now
}

// A Scene describes a list of the API server that lacks pods.
type Scene struct {
	Known    Identity // identity at the last accepted list
	Now      Identity
	Running  int       // number of pods of the API server that are to run; pods that are being deleted are not counted
	Vanished int       // number of these pods that the list lacks, including pods on hold
	Held     bool      // a hold exists
	Seen     *Identity // the identity at which the hold was judged; nil if it has not been judged yet
}

// A Verdict is the decision about the pods that vanished.
type Verdict int

// Verdicts.
const (
	EndAll     Verdict = iota // they were deleted
	HoldAll                   // the control plane lost them
	HoldFormer                // pods of an existing hold stay on hold; all other missing pods were deleted
)

// String names a verdict.
func (v Verdict) String() string { return [...]string{"end all", "hold all", "hold former"}[v] }

// Judge decides about the pods that a list lacks, and returns the reason of a hold. It is a pure function.
func Judge(s Scene) (v Verdict, why string) {
	why = s.Known.differs(s.Now)
	switch {
	case s.Vanished == 0 || why == "":
		return EndAll, ""
	case s.Held && s.Seen != nil && *s.Seen == s.Now:
		// The hold is about another control plane. The pods of this one come and go as usual.
		return HoldFormer, why
	case s.Now.Node == "" && s.Known.Node != "": // the list is judged again when the node has registered again
		return HoldAll, why
	case mostVanished(s.Vanished, s.Running):
		return HoldAll, why
	}
	return EndAll, ""
}

// mostVanished reports whether too many pods vanished for deletions by hand.
func mostVanished(vanished, running int) bool {
	return vanished > 0 && (vanished >= running || vanished >= 3 && 2*vanished >= running)
}
