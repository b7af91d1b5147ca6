package doctor

import (
	"context"
	"fmt"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/keys"
)

// A Link is the state of an agent's connection to its control plane.
type Link struct {
	State           string // Up, Down, Connecting
	Server          string // host and port of the API server; empty if there is no kubeconfig
	Reason, Message string // why the link is not up; Reason is one word, as in the agent's status
	Kubeconfig      string // path
	Bootstrap       string // path of the bootstrap kubeconfig; empty if none is configured
}

// askLink returns the link of the agent that listens at a socket and has the configuration cfg.
func askLink(ctx context.Context, socket string, cfg *config.Config) (Link, bool) {
	var st api.Status
	if !askAgent(ctx, socket, api.PathStatus, &st) || st.Cluster == nil {
		return Link{}, false
	}
	c := st.Cluster
	return Link{State: c.Link, Server: c.Server, Reason: c.Reason, Message: c.Message, Kubeconfig: cfg.Kubeconfig,
		Bootstrap: cfg.BootstrapKubeconfig}, true
}

// checkLink reports the state of the agent's connection to its control plane, with advice how to restore it.
func (p *checkup) checkLink(ctx context.Context) {
	if p.Link == nil {
		return
	}
	l, ok := p.Link(ctx)
	switch {
	case !ok:
	case l.State == "Up":
		p.add("link", OK, "", "the API server %s answers", l.Server)
	case l.State == "Connecting":
		p.add("link", Info, "run it again", "the agent is checking whether the API server %s answers", l.Server)
	default:
		p.add("link", Warning, l.advice(), "no link to the API server (%s): %s", l.Reason, l.Message)
	}
}

// advice returns the advice for a link that is down. docs/offline.md has the same advice.
func (l Link) advice() string {
	const stays = "The agent notices the file. You need not delete a pod or restart anything"
	replace := fmt.Sprintf("replace %s with a kubeconfig with the cluster's CA and a client certificate of this node that "+
		"this CA signed", l.Kubeconfig)
	if l.Reason == "NoCredentials" && l.Kubeconfig == "" && l.Bootstrap == "" { // the configuration has no cluster any more
		return "restore --kubeconfig or k3s.directory and restart the agent; to leave the cluster, run islet accept, which ends its pods"
	}
	switch l.Reason {
	case "ServerCertificateInvalid":
		return fmt.Sprintf("if the cluster's CA was replaced, %s, and replace clientCAFile with the new CA. %s. If the CA was not "+
			"replaced, another server answers at that address", replace, stays)
	case "NotAPIServer":
		return "log in to the captive portal, or allow the node at the proxy; if the address belongs to another server, " + replace +
			". Pods keep running meanwhile"
	case "ClientCertificateExpired", "NoCredentials":
		if l.Bootstrap != "" {
			return fmt.Sprintf("put a valid bootstrap kubeconfig at %s, or %s. %s", l.Bootstrap, replace, stays)
		}
		return replace + ". " + stays
	case "Unauthorized":
		return replace + ". " + stays
	case keys.DuplicateCondition:
		return "make sure that the other machine is off, or start one of them with another name (--hostname-override) and an empty state " +
			"directory; then run islet takeover on the machine that keeps the name. If a board or network card was replaced, " +
			"run islet takeover at once"
	case "Bootstrapping":
		return "approve the certificate signing request of this node, unless the cluster approves it automatically"
	}
	return "check the network and the control plane. Pods keep running meanwhile"
}
