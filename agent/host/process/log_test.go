package process

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	logsapi "k8s.io/component-base/logs/api/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/internal/config"
)

// This helper creates a configuration and lets the function change modify it. The function use then writes to a logger with this
// configuration. The helper returns the output of both streams.
func logged(change func(*config.Config), use func(*slog.Logger)) (out, errors string) {
	c := &config.Config{}
	c.Kubelet.Logging.Format = "text"
	change(c)
	var o, e bytes.Buffer
	use(Logger(c, &o, &e))
	return o.String(), e.String()
}

func levels(l *slog.Logger) {
	l.Debug("one")
	l.Info("two")
	l.Error("three")
}

// TestStreams checks that log lines below the level error go to standard error by default. They go to standard output only if splitStream
// is set for the current log format.
func TestStreams(t *testing.T) {
	for name, c := range map[string]struct {
		change      func(*config.Config)
		out, errors string // words that the output contains
	}{
		"usual": {func(c *config.Config) {}, "", "two three"},
		"debug": {func(c *config.Config) { c.LogLevel = slog.LevelDebug }, "", "one two three"},
		"split": {func(c *config.Config) { c.Kubelet.Logging.Options.Text.SplitStream = true }, "two", "three"},
		"other": {func(c *config.Config) { c.Kubelet.Logging.Options.JSON.SplitStream = true }, "", "two three"},
		"split of JSON": {func(c *config.Config) {
			c.Kubelet.Logging.Format, c.Kubelet.Logging.Options.JSON.SplitStream = "json", true
		}, "two", "three"},
		"JSON": {func(c *config.Config) {
			c.Kubelet.Logging.Format, c.Kubelet.Logging.Options.Text.SplitStream = "json", true
		}, "", "two three"},
	} {
		for with, use := range map[string]func(*slog.Logger){"bare": levels, "with attributes": func(l *slog.Logger) { levels(l.With("a", 1).WithGroup("g").With("b", 2)) }} {
			out, errors := logged(c.change, use)
			for text, want := range map[string]string{out: c.out, errors: c.errors} {
				for _, word := range []string{"one", "two", "three"} {
					if strings.Contains(text, word) != strings.Contains(want, word) {
						t.Errorf("%s %s: %q, want the words %q", name, with, text, want)
					}
				}
			}
		}
	}
}

// TestFilesOfTheirOwn checks that vmodule raises or lowers the verbosity of matching files. A later change of the level applies only to the
// other files.
func TestFilesOfTheirOwn(t *testing.T) {
	for _, c := range []struct {
		pattern string
		v       int
		level   slog.Level
		want    string
	}{
		{"log_test", 4, 0, "one two three"},
		{"log_*", 4, 0, "one two three"},
		{"agent/host/process/log_test", 4, 0, "one two three"},
		{"agent/*/*/log_test", 4, 0, "one two three"},
		{"other/process/log_test", 4, 0, "two three"},
		{"log", 4, 0, "two three"},
		{"[", 4, 0, "two three"},
		{"log_test", 0, slog.LevelDebug, "two three"},
		{"log", 0, slog.LevelDebug, "one two three"},
	} {
		_, got := logged(func(cfg *config.Config) {
			cfg.LogLevel = c.level
			cfg.Kubelet.Logging.VModule = logsapi.VModuleConfiguration{{FilePattern: "nothing", Verbosity: 0}, {FilePattern: c.pattern, Verbosity: logsapi.VerbosityLevel(c.v)}}
		}, func(l *slog.Logger) { levels(l); levels(l.With("a", 1)) })
		for _, word := range []string{"one", "two", "three"} {
			want := 0
			if strings.Contains(c.want, word) {
				want = 2
			}
			if n := strings.Count(got, "msg="+word); n != want {
				t.Errorf("%s=%d over %v: %s is logged %d times, want %d", c.pattern, c.v, c.level, word, n, want)
			}
		}
	}
	_, got := logged(func(cfg *config.Config) {
		cfg.Kubelet.Logging.VModule = logsapi.VModuleConfiguration{{FilePattern: "other", Verbosity: 4}}
	}, func(l *slog.Logger) {
		levels(l)
		LevelOf(l)(slog.LevelDebug)
		levels(l)
	})
	if n := strings.Count(got, "msg=one"); n != 1 {
		t.Errorf("a line of the later level is logged %d times", n)
	}
}

// TestLogConfig checks that the configuration is logged only at the debug level. Credentials in headers are omitted.
func TestLogConfig(t *testing.T) {
	cfg := &config.Config{}
	cfg.Kubelet.EventBurst = 101
	cfg.Kubelet.StaticPodURLHeader = map[string][]string{"Authorization": {"secret"}}
	var out strings.Builder
	LogConfig(t.Context(), cfg, Logger(cfg, &out, &out))
	if out.Len() > 0 {
		t.Errorf("by default: %s", out.String())
	}
	cfg.LogLevel = slog.LevelDebug
	cfg.Kubelet.Logging.Format = "json"
	LogConfig(t.Context(), cfg, Logger(cfg, &out, &out))
	var line struct{ Config string }
	if err := json.Unmarshal([]byte(out.String()), &line); err != nil {
		t.Fatal(err)
	}
	var got kubelet.KubeletConfiguration
	if err := yaml.UnmarshalStrict([]byte(line.Config), &got); err != nil {
		t.Fatal(err)
	}
	if got.Kind != "KubeletConfiguration" || got.EventBurst != 101 || got.StaticPodURLHeader["Authorization"][0] == "secret" {
		t.Errorf("logged %s", line.Config)
	}
	if cfg.Kubelet.StaticPodURLHeader["Authorization"][0] != "secret" {
		t.Error("the configuration itself is masked")
	}
}
