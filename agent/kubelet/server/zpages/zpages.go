package zpages

import (
	"context"
	"log/slog"
	"time"

	kubelet "k8s.io/kubelet/config/v1beta1"
)

// Config configures Pages.
type Config struct {
	Version       string // of islet
	KubeVersion   string // version of the corresponding kubelet, such as v1.37.2
	Started       time.Time
	Checks        []Check                       // the checks of healthz
	Configuration *kubelet.KubeletConfiguration // for /configz, which responds with 404 if it is nil
	Flags         []string                      // all flags as name=value, sorted, for /flagz
	SetLogLevel   func(v int)                   // sets the log level on klog's scale. SetLevel requires it
	Log           *slog.Logger
}

// Pages serves the pages about this process.
type Pages struct {
	Config
	checks []Check // Checks, and the checks of every Kubernetes component
	slis   slis
}

// New returns Pages.
func New(c Config) *Pages {
	fine := func(context.Context) error { return nil }
	return &Pages{Config: c, checks: append([]Check{{"ping", fine}, {"log", fine}}, c.Checks...)}
}
