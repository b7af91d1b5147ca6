package node

import (
	"cmp"
	"io"
	"net/http"
	"strings"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
)

// A Configurer manages configurations of the whole node. *configure.Local implements it.
type Configurer interface {
	Show() api.Configuration
	// Apply starts a trial of the configuration in the documents. Its error lists the invalid fields.
	Apply(documents []byte, from string, o api.ConfigurationOptions) (api.ConfigurationRef, error)
	// Revert returns to the last good configuration before the current one.
	Revert() (api.ConfigurationRef, error)
}

func (n *Node) addConfigurationPaths(paths map[string]http.HandlerFunc) {
	paths["GET "+api.PathConfiguration] = response.JSON(n.showConfiguration)
	paths["POST "+api.PathConfiguration] = response.JSON(n.applyConfiguration)
	paths["DELETE "+api.PathConfiguration] = response.JSON(n.revertConfiguration)
}

func (n *Node) showConfiguration(*http.Request) (any, error) {
	return n.Configuration.Show(), nil
}

func (n *Node) revertConfiguration(*http.Request) (any, error) {
	ref, err := n.Configuration.Revert()
	return ref, unprocessableError(err)
}

func (n *Node) applyConfiguration(r *http.Request) (any, error) {
	data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, api.MaxConfiguration))
	if err != nil {
		return nil, response.Refuse(http.StatusRequestEntityTooLarge, "the configuration is larger than 2 MiB, or incomplete: %v", err)
	}
	q := r.URL.Query()
	var consent []string
	for f := range strings.SplitSeq(q.Get("consent"), ",") {
		if f = strings.TrimSpace(f); f != "" {
			consent = append(consent, f)
		}
	}
	ref, err := n.Configuration.Apply(data, cmp.Or(q.Get("from"), "a file"), api.ConfigurationOptions{
		Consent: consent, Dry: q.Has("dryRun"), DespitePods: q.Has("despitePods"),
	})
	return ref, unprocessableError(err)
}

func unprocessableError(err error) error {
	if err == nil {
		return nil
	}
	return response.Refusal{Code: http.StatusUnprocessableEntity, Message: err.Error()}
}
