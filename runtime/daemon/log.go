package daemon

import (
	"context"
	"log/slog"
	"strings"

	"github.com/sirupsen/logrus"
)

// logHook forwards the log of containerd's packages to slog.
type logHook struct{ log *slog.Logger }

func (logHook) Levels() []logrus.Level { return []logrus.Level{logrus.WarnLevel, logrus.ErrorLevel} }

func (h logHook) Fire(e *logrus.Entry) error {
	level := slog.LevelWarn
	if strings.Contains(e.Message, "fsverity") {
		level = slog.LevelDebug // most file systems do not support it, and it is not needed
	}
	if e.Level <= logrus.ErrorLevel {
		level = slog.LevelError
	}
	args := make([]any, 0, 2*len(e.Data))
	for k, v := range e.Data {
		args = append(args, k, v)
	}
	h.log.Log(context.Background(), level, e.Message, args...)
	return nil
}
