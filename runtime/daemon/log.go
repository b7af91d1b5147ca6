package daemon

import (
	"context"
	"log/slog"
	"strings"

	"github.com/sirupsen/logrus"
)

// logHook is a logrus hook that forwards log entries to slog.
type logHook struct{ log *slog.Logger }

func (logHook) Levels() []logrus.Level { return []logrus.Level{logrus.WarnLevel, logrus.ErrorLevel} }

func (h logHook) Fire(e *logrus.Entry) error {
	level := slog.LevelWarn
	if strings.Contains(e.Message, "fsverity") {
		level = slog.LevelDebug // optional, and unsupported by most file systems
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
