package process

import (
	"context"
	"io"
	"log/slog"
	"path"
	"runtime"
	"strings"
	"sync"

	"github.com/islet-edge/islet/internal/config"
)

// Logger writes to errors, in the format and from the level that are configured; with
// splitStream what is no error goes to out.
func Logger(cfg *config.Config, out, errors io.Writer) *slog.Logger {
	level := &slog.LevelVar{}
	level.Set(cfg.LogLevel)
	logging := &cfg.Kubelet.Logging
	all := &slog.HandlerOptions{Level: slog.Level(-128)} // what is below never gets there
	format := func(w io.Writer) slog.Handler {
		if logging.Format == "json" {
			return slog.NewJSONHandler(w, all)
		}
		return slog.NewTextHandler(w, all)
	}
	h := leveled{Handler: format(errors), level: level}
	if split := logging.Options.Text.SplitStream; logging.Format == "json" && logging.Options.JSON.SplitStream ||
		logging.Format != "json" && split {
		h.Handler = divided{rest: format(out), errors: h.Handler}
	}
	for _, m := range logging.VModule {
		if h.files == nil {
			h.files = &files{level: level}
		}
		h.files.patterns = append(h.files.patterns, pattern{m.FilePattern, slog.Level(-int(m.Verbosity))})
	}
	return slog.New(h)
}

// A leveled handler is one whose level may be set while the agent runs.
type leveled struct {
	slog.Handler
	level *slog.LevelVar
	files *files // with levels of their own; nil: none
}

// LevelOf returns what sets the level of a Logger while the agent runs; nil: log is none.
func LevelOf(log *slog.Logger) (set func(slog.Level)) {
	if l, ok := log.Handler().(leveled); ok {
		return l.level.Set
	}
	return nil
}

// Enabled implements slog.Handler. Of a line in a file with a level of its own it says yes to
// what may be one; Handle sees where it is from.
func (l leveled) Enabled(_ context.Context, level slog.Level) bool {
	return level >= l.level.Level() || l.files != nil && l.files.may(level)
}

// Handle implements slog.Handler.
func (l leveled) Handle(ctx context.Context, r slog.Record) error {
	if l.files != nil && r.Level < l.files.of(r.PC) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	l.Handler = l.Handler.WithAttrs(attrs)
	return l
}

// WithGroup implements slog.Handler.
func (l leveled) WithGroup(name string) slog.Handler {
	l.Handler = l.Handler.WithGroup(name)
	return l
}

// divided is two streams: of errors, and of the rest.
type divided struct{ rest, errors slog.Handler }

func (d divided) to(level slog.Level) slog.Handler {
	if level >= slog.LevelError {
		return d.errors
	}
	return d.rest
}

// Enabled implements slog.Handler.
func (d divided) Enabled(ctx context.Context, level slog.Level) bool {
	return d.to(level).Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (d divided) Handle(ctx context.Context, r slog.Record) error {
	return d.to(r.Level).Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (d divided) WithAttrs(attrs []slog.Attr) slog.Handler {
	return divided{d.rest.WithAttrs(attrs), d.errors.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (d divided) WithGroup(name string) slog.Handler {
	return divided{d.rest.WithGroup(name), d.errors.WithGroup(name)}
}

// files are the levels of source files, as klog's vmodule has them: the first pattern that
// matches counts. One without a slash is of a file's name, without .go; one with a slash is
// of as many directories too.
type files struct {
	level    *slog.LevelVar // of the others
	patterns []pattern
	known    sync.Map // from the program counter of a call to its *slog.Level; nil: that of the others
}

type pattern struct {
	glob  string
	level slog.Level
}

func (f *files) may(level slog.Level) bool {
	for _, p := range f.patterns {
		if level >= p.level {
			return true
		}
	}
	return false
}

func (f *files) of(pc uintptr) slog.Level {
	found, ok := f.known.Load(pc)
	if !ok {
		frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
		found, _ = f.known.LoadOrStore(pc, f.match(frame.File))
	}
	if own := found.(*slog.Level); own != nil {
		return *own
	}
	return f.level.Level()
}

func (f *files) match(file string) *slog.Level {
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
