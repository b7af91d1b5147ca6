package brake

import "k8s.io/apimachinery/pkg/types"

// An Identity identifies the control plane of one node. An empty field is unknown.
type Identity struct {
	Cluster types.UID `json:"cluster,omitempty"` // UID of the Service default/kubernetes
	Node    types.UID `json:"node,omitempty"`    // UID of the Node; in an identity just read, empty means that the Node does not exist
	Epoch   int       `json:"epoch,omitempty"`   // value of (*history.History).Epoch
}

// describeDifference returns the difference between two identities as a sentence, or "" if they are the same.
func (before Identity) describeDifference(now Identity) string {
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

// merge returns the new identity. Its empty fields get the values of the former identity.
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
	Running  int       // number of pods of the API server that run; pods that are being deleted do not count
	Vanished int       // number of running pods that the list lacks, including pods on hold
	Held     bool      // a hold exists
	Seen     *Identity // identity at the last judgement of the hold; nil before the first judgement
}

// A Verdict is the decision about vanished pods.
type Verdict int

// Verdicts.
const (
	EndAll     Verdict = iota // the pods were deleted on purpose
	HoldAll                   // the control plane has lost the pods
	HoldFormer                // pods of an existing hold stay on hold; the other missing pods were deleted
)

// String names a verdict.
func (v Verdict) String() string { return [...]string{"end all", "hold all", "hold former"}[v] }

// Judge decides whether the running pods that are missing in a list end or go on hold. It returns the verdict, and the reason if pods go on
// hold. It is a pure function.
func Judge(s Scene) (v Verdict, why string) {
	why = s.Known.describeDifference(s.Now)
	switch {
	case s.Vanished == 0 || why == "":
		return EndAll, ""
	case s.Held && s.Seen != nil && *s.Seen == s.Now:
		// This identity was already judged. The pods on hold belong to the former control plane. The pods of the current control plane
		// start and end as usual.
		return HoldFormer, why
	case s.Now.Node == "" && s.Known.Node != "": // the next list is judged after the node has registered again
		return HoldAll, why
	case mostVanished(s.Vanished, s.Running):
		return HoldAll, why
	}
	return EndAll, ""
}

// mostVanished reports whether the number of vanished pods is too large for manual deletions.
func mostVanished(vanished, running int) bool {
	return vanished > 0 && (vanished >= running || vanished >= 3 && 2*vanished >= running)
}
