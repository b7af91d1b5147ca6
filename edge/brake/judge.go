package brake

import "k8s.io/apimachinery/pkg/types"

// An Identity is who a control plane is, to one node. What is not known is empty.
type Identity struct {
	Cluster types.UID `json:"cluster,omitempty"` // of the Service default/kubernetes
	Node    types.UID `json:"node,omitempty"`    // of the Node; empty in an answer: there is none
	Epoch   int       `json:"epoch,omitempty"`   // of the history
}

// differs says why an identity is another than the one before; empty: it is not.
func (before Identity) differs(now Identity) string {
	switch {
	case before.Cluster != "" && now.Cluster != "" && before.Cluster != now.Cluster:
		return "this is another cluster than before"
	case before.Node != "" && now.Node == "":
		return "the Node of this machine was deleted"
	case before.Node != "" && before.Node != now.Node:
		return "the Node of this machine was deleted and made anew"
	case before.Epoch != now.Epoch:
		return "the cluster's data are older than what this node has seen, as after a restore from a backup"
	}
	return ""
}

// merge takes over what is known of a newer identity.
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
	Known    Identity // when the pods were last in order
	Now      Identity
	Running  int       // pods of the API server that are to run, without those that it deletes
	Vanished int       // of these, those that it does not have, held ones too
	Held     bool      // some are held
	Seen     *Identity // the one for which they are; nil: not settled
}

// A Verdict is what to do about the pods that vanished.
type Verdict int

// Verdicts.
const (
	EndAll     Verdict = iota // they were deleted
	HoldAll                   // the control plane lost them
	HoldFormer                // those that are held; what vanished besides was deleted
)

// String names a verdict.
func (v Verdict) String() string { return [...]string{"end all", "hold all", "hold former"}[v] }

// Judge decides about a list, and says why it holds pods. It is pure.
func Judge(s Scene) (v Verdict, why string) {
	why = s.Known.differs(s.Now)
	switch {
	case s.Vanished == 0 || why == "":
		return EndAll, ""
	case s.Held && s.Seen != nil && *s.Seen == s.Now:
		// The pods that this control plane had itself come and go as it says.
		return HoldFormer, why
	case s.Now.Node == "" && s.Known.Node != "": // the node makes it anew now: then it is judged
		return HoldAll, why
	case most(s.Vanished, s.Running):
		return HoldAll, why
	}
	return EndAll, ""
}

// most says that so many pods vanished that no one deletes them like that by mistake.
func most(vanished, running int) bool {
	return vanished > 0 && (vanished >= running || vanished >= 3 && 2*vanished >= running)
}
