package process

import (
	"context"
	"io"
	"log/slog"
	"path"
	"runtime"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/internal/config"
)

// Logger returns a logger with the configured format and level. The logger writes to the stream named errors. If
// splitStream is set, it writes lines below the error level to the stream named out.
func Logger(cfg *config.Config, out, errors io.Writer) *slog.Logger {
	level := &slog.LevelVar{}
	level.Set(cfg.LogLevel)
	logging := &cfg.Kubelet.Logging
	all := &slog.HandlerOptions{Level: slog.Level(-128)} // levels are filtered by leveledHandler
	format := func(w io.Writer) slog.Handler {
		if logging.Format == "json" {
			return slog.NewJSONHandler(w, all)
		}
		return slog.NewTextHandler(w, all)
	}
	h := leveledHandler{Handler: format(errors), level: level}
	if split := logging.Options.Text.SplitStream; logging.Format == "json" && logging.Options.JSON.SplitStream ||
		logging.Format != "json" && split {
		h.Handler = splitHandler{rest: format(out), errors: h.Handler}
	}
	for _, m := range logging.VModule {
		if h.files == nil {
			h.files = &files{level: level}
		}
		h.files.patterns = append(h.files.patterns, pattern{m.FilePattern, slog.Level(-int(m.Verbosity))})
	}
	return slog.New(h)
}

// LogConfig logs the effective KubeletConfiguration as YAML, but only at the level debug. A kubelet logs it at every
// start. On an edge device this would write some kilobytes to the flash storage each time.
func LogConfig(ctx context.Context, cfg *config.Config, log *slog.Logger) {
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	text, err := yaml.Marshal(config.Redacted(&cfg.Kubelet))
	if err != nil {
		log.Error("cannot log the configuration", "error", err)
		return
	}
	log.Debug("Effective KubeletConfiguration", "config", string(text)) // a kubelet's words
}

// A leveledHandler has a level that can be changed at run time.
type leveledHandler struct {
	slog.Handler
	level *slog.LevelVar
	files *files // files with their own levels; nil if there are none
}

// LevelOf returns a function that changes the level of log. It returns nil if log was not created by Logger.
func LevelOf(log *slog.Logger) (set func(slog.Level)) {
	if l, ok := log.Handler().(leveledHandler); ok {
		return l.level.Set
	}
	return nil
}

// Enabled implements slog.Handler. Some source files may have levels of their own. Enabled returns true if the level is
// enabled for any source file, and Handle then checks the file of the line.
func (l leveledHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= l.level.Level() || l.files != nil && l.files.isEnabled(level)
}

// Handle implements slog.Handler.
func (l leveledHandler) Handle(ctx context.Context, r slog.Record) error {
	if l.files != nil && r.Level < l.files.levelOf(r.PC) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l leveledHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	l.Handler = l.Handler.WithAttrs(attrs)
	return l
}

// WithGroup implements slog.Handler.
func (l leveledHandler) WithGroup(name string) slog.Handler {
	l.Handler = l.Handler.WithGroup(name)
	return l
}

// splitHandler writes errors to one stream and other lines to another.
type splitHandler struct{ rest, errors slog.Handler }

func (d splitHandler) handlerFor(level slog.Level) slog.Handler {
	if level >= slog.LevelError {
		return d.errors
	}
	return d.rest
}

// Enabled implements slog.Handler.
func (d splitHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return d.handlerFor(level).Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (d splitHandler) Handle(ctx context.Context, r slog.Record) error {
	return d.handlerFor(r.Level).Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (d splitHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return splitHandler{d.rest.WithAttrs(attrs), d.errors.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (d splitHandler) WithGroup(name string) slog.Handler {
	return splitHandler{d.rest.WithGroup(name), d.errors.WithGroup(name)}
}

// files contains the levels of source files, as in klog's vmodule. The first matching pattern applies. A pattern
// without a slash matches the file's name without .go. A pattern with n slashes is also compared with the last n
// directories of the path.
type files struct {
	level        *slog.LevelVar // level of all other files
	patterns     []pattern
	cachedLevels sync.Map // maps the program counter of a call to its *slog.Level, or to nil for the default level
}

type pattern struct {
	glob  string
	level slog.Level
}

func (f *files) isEnabled(level slog.Level) bool {
	for _, p := range f.patterns {
		if level >= p.level {
			return true
		}
	}
	return false
}

func (f *files) levelOf(pc uintptr) slog.Level {
	found, ok := f.cachedLevels.Load(pc)
	if !ok {
		frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
		found, _ = f.cachedLevels.LoadOrStore(pc, f.matchPattern(frame.File))
	}
	if own := found.(*slog.Level); own != nil {
		return *own
	}
	return f.level.Level()
}

func (f *files) matchPattern(file string) *slog.Level {
	file = strings.TrimSuffix(file, ".go")
	for i, p := range f.patterns {
		name := file
		for range strings.Count(file, "/") - strings.Count(p.glob, "/") {
			_, name, _ = strings.Cut(name, "/")
		}
		if ok, err := path.Match(p.glob, name); ok && err == nil {
			return &f.patterns[i].level
		}
	}
	return nil
}
