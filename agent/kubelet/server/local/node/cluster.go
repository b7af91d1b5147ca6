package node

import (
	"net/http"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
)

// acceptHeldPods ends the pods on hold. These are pods that run on the node but that the control plane does not have.
// With this request a user at the device confirms that the pods are to end.
func (n *Node) acceptHeldPods(r *http.Request) (any, error) {
	if n.Accept == nil {
		return api.Accepted{}, nil
	}
	return n.Accept(r.Context())
}

// takeOver assigns the node's name to this machine. With this request a user at the device confirms that this
// machine replaces the other machine with the same name, or that there is no other machine.
func (n *Node) takeOver(r *http.Request) (any, error) {
	done, err := n.TakeOver(r.Context(), r.URL.Query().Has("force"))
	if err != nil {
		return done, response.Refusal{Code: http.StatusConflict, Message: err.Error()}
	}
	return done, nil
}
