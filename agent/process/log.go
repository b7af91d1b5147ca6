package process

import (
	"io"
	"log/slog"

	"github.com/islet-edge/islet/agent/config"
)

// Logger writes to w in the format and from the level that are configured.
func Logger(cfg *config.Config, w io.Writer) *slog.Logger {
	level := &slog.LevelVar{}
	level.Set(cfg.LogLevel)
	options := &slog.HandlerOptions{Level: level}
	if cfg.Kubelet.Logging.Format == "json" {
		return slog.New(leveled{slog.NewJSONHandler(w, options), level})
	}
	return slog.New(leveled{slog.NewTextHandler(w, options), level})
}

// A leveled handler is one whose level may be set while the agent runs.
type leveled struct {
	slog.Handler
	level *slog.LevelVar
}

// LevelOf returns what sets the level of a Logger while the agent runs; nil: log is none.
func LevelOf(log *slog.Logger) (set func(slog.Level)) {
	if l, ok := log.Handler().(leveled); ok {
		return l.level.Set
	}
	return nil
}
