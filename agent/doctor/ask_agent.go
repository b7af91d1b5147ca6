package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/config"
)

// findConfiguration returns the settings to which the report applies, and a finding about them. If args contains flags,
// findConfiguration returns the settings that result from the flags. Otherwise it returns the settings of a running
// agent. If no agent responds, it returns the settings of the installed service. If no service is installed, it returns
// the settings of an agent without flags. If these settings are invalid or cannot be read, it returns the defaults.
func findConfiguration(ctx context.Context, args, sockets []string, installed *service) (*config.Config, Finding, error) {
	var silent *Finding
	if len(args) == 0 {
		for _, socket := range sockets {
			var cfg config.Config
			err := requestJSON(ctx, socket, api.PathSettings, &cfg)
			if f, bad := installed.nextStart(); err == nil && bad {
				return &cfg, f, nil
			}
			if err == nil {
				return &cfg, Finding{ID: "configuration", Severity: OK, What: "the settings come from the agent at  " + socket}, nil
			}
			if f, there := silentAgent(socket, err); there {
				silent = &f
			}
		}
	}
	of := ""
	if installed != nil && len(args) == 0 {
		args, of = installed.args, " of "+installed.name
	}
	cfg, _, err := config.Load(args)
	if err != nil && installed != nil && installed.waitsForKubeadm(err) {
		cfg, _, err = config.Load(defaultsOnly())
	}
	if err == nil && silent != nil {
		if of != "" {
			silent.What = strings.Replace(silent.What, "this report is for the defaults", "this report is for the configuration"+of, 1)
		}
		return cfg, *silent, nil
	}
	if err == nil {
		return cfg, Finding{ID: "configuration", Severity: OK, What: validText(of, cfg.Files())}, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		finding := Finding{ID: "configuration", Severity: Warning, What: oneLine(err.Error()),
			Advice: "run it as root; the rest of this report is about the defaults"}
		cfg, _, err = config.Load(defaultsOnly())
		return cfg, finding, err
	}
	finding := Finding{ID: "configuration", Severity: Error,
		What: invalidText(of) + oneLine(err.Error()), Advice: "correct it; the rest of this report is about the defaults"}
	cfg, _, err = config.Load(defaultsOnly())
	return cfg, finding, err
}

// defaultsOnly returns the command-line flags of an agent that reads no configuration file.
func defaultsOnly() []string {
	return []string{"--hostname-override=node", "--config=", "--edge-config="}
}

func validText(of string, files []string) string {
	text := "the configuration" + of + " is valid"
	if len(files) > 0 {
		text += ": " + oneLine(strings.Join(files, ", "))
	}
	return text
}

func invalidText(of string) string {
	if of == "" {
		return ""
	}
	return "the configuration" + of + " has a mistake: "
}

// silentAgent returns the finding about an agent that did not return its settings. If no agent listens at the socket,
// silentAgent returns false.
func silentAgent(socket string, err error) (f Finding, there bool) {
	f = Finding{ID: "configuration", Severity: Warning,
		What: fmt.Sprintf("the agent at %s does not return its settings (%v): this report is for the defaults", socket, err)}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return f, false
	case errors.Is(err, fs.ErrPermission):
		f.What, f.Advice = fmt.Sprintf("no permission to read the settings of the agent at %s: this report is for the defaults",
			socket), "run it as root"
	case errors.Is(err, context.DeadlineExceeded):
		f.What, f.Advice = fmt.Sprintf("the agent at %s does not answer: this report is for the defaults", socket),
			"see its log, and restart it; the pods keep running"
	default:
		f.Advice = "pass the flags that the agent is started with"
	}
	return f, true
}

// Settings returns the settings that an agent with the given configuration sends to Main.
func Settings(cfg *config.Config) any {
	c := *cfg
	c.Kubelet.StaticPodURLHeader = nil // the header may contain a password, and no check needs it
	c.Edge.Bundle.Source = ""          // the same for the URL
	return c
}

func socketIn(run string) string { return filepath.Join(run, filepath.Base(api.DefaultSocket)) }

// agentSockets returns the sockets at which agents may listen. If the caller gives a socket, agentSockets returns only
// that socket. Otherwise it returns the default socket and the sockets of the agents that run on this machine.
func agentSockets(given string) []string {
	if given != "" {
		return []string{given}
	}
	sockets := []string{api.DefaultSocket}
	for _, dir := range RunDirs(os.DirFS("/"), os.Getpid(), filepath.Dir(api.DefaultSocket)) {
		if s := socketIn(dir); !slices.Contains(sockets, s) {
			sockets = append(sockets, s)
		}
	}
	return sockets
}

// otherBridges returns the bridges of the agents that listen at the sockets.
func otherBridges(ctx context.Context, sockets []string) (names []string) {
	for _, socket := range sockets {
		var cfg config.Config
		if askAgent(ctx, socket, api.PathSettings, &cfg) {
			names = append(names, cfg.Edge.BridgeName)
		}
	}
	return names
}

// askSandboxes returns the IDs of all sandboxes of the agent at a socket. It returns false if the agent does not
// respond, or if the agent does not know the sandboxes.
func askSandboxes(ctx context.Context, socket string) (ids []string, ok bool) {
	var st api.Status
	ok = askAgent(ctx, socket, api.PathStatus, &st)
	return st.Sandboxes, ok && st.Sandboxes != nil
}

// maxSettings is the maximum size of an agent's response.
const maxSettings = 64 << 20

// askAgent decodes the response of the agent at a socket into the variable out. It returns false if there is no valid
// response within 5 s. A missing response is not an error, because the report is about the machine and not about the
// agent.
func askAgent(ctx context.Context, socket, path string, out any) bool {
	return requestJSON(ctx, socket, path, out) == nil
}

func requestJSON(ctx context.Context, socket, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://islet"+path, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxSettings)).Decode(out)
}
