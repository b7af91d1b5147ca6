package zpages

import (
	"net/http"

	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/config"
)

// Configz serves /configz. It returns the effective configuration of the kubelet.
func (p *Pages) Configz(*http.Request) (any, error) {
	if p.Configuration == nil {
		return nil, response.Refuse(http.StatusNotFound, "the configuration is not available")
	}
	c := config.Redacted(p.Configuration)
	return map[string]*kubelet.KubeletConfiguration{"kubeletconfig": &c}, nil
}
