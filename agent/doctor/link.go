package doctor

import (
	"context"
	"fmt"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/keys"
)

// A Link is how an agent stands with its control plane.
type Link struct {
	State           string // Up, Down, Connecting
	Server          string // its name and port; empty: no kubeconfig names one
	Reason, Message string // why it is not up: one word, which the agent's status shows too, and a sentence
	Kubeconfig      string // path
	Bootstrap       string // path of the bootstrap kubeconfig; empty: none is configured
}

// askLink asks the agent at a socket, whose configuration is cfg.
func askLink(ctx context.Context, socket string, cfg *config.Config) (Link, bool) {
	var st api.Status
	if !askAgent(ctx, socket, api.PathStatus, &st) || st.Cluster == nil {
		return Link{}, false
	}
	c := st.Cluster
	return Link{State: c.Link, Server: c.Server, Reason: c.Reason, Message: c.Message, Kubeconfig: cfg.Kubeconfig,
		Bootstrap: cfg.BootstrapKubeconfig}, true
}

// link asks the agent for the way to its control plane, and says how a node comes back
// that the control plane, or that the node itself, no longer trusts.
func (p *patient) link(ctx context.Context) {
	if p.Link == nil {
		return
	}
	l, ok := p.Link(ctx)
	switch {
	case !ok:
	case l.State == "Up":
		p.add("link", OK, "", "the API server %s answers", l.Server)
	case l.State == "Connecting":
		p.add("link", Info, "run it again", "the agent is finding out whether the API server %s answers", l.Server)
	default:
		p.add("link", Warning, l.wayBack(), "no link to the API server (%s): %s", l.Reason, l.Message)
	}
}

// wayBack is what docs/offline.md says.
func (l Link) wayBack() string {
	const stays = "The agent notices the file; no pod has to be deleted and nothing to be restarted"
	replace := fmt.Sprintf("put a kubeconfig in place of %s that has the cluster's CA and a client certificate of this node "+
		"which that CA signed", l.Kubeconfig)
	switch l.Reason {
	case "ServerCertificateInvalid":
		return fmt.Sprintf("if the cluster's CA was replaced, %s, and the new CA in place of clientCAFile. %s. If it was not, "+
			"someone else answers at that address", replace, stays)
	case "NotAPIServer":
		return "log in to the captive portal, or have the proxy let the node through; if the address is another server's, " + replace +
			". Pods go on running meanwhile"
	case "ClientCertificateExpired", "NoCredentials":
		if l.Bootstrap != "" {
			return fmt.Sprintf("put a valid bootstrap kubeconfig at %s, or %s. %s", l.Bootstrap, replace, stays)
		}
		return replace + ". " + stays
	case "Unauthorized":
		return replace + ". " + stays
	case keys.DuplicateCondition:
		return "turn the other machine off, or give one of them another name (--hostname-override) and an empty state directory; " +
			"then run islet takeover on the one that stays. After a board or a network card was replaced, run it at once"
	case "Bootstrapping":
		return "approve the certificate signing request of this node, unless the cluster does so by itself"
	}
	return "look at the network and at the control plane. Pods go on running meanwhile"
}
