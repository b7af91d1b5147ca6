package node

import "testing"

// TestGoesOff checks that the command reads OpenRC's environment variables to recognize that the machine is shutting down.
func TestGoesOff(t *testing.T) {
	for _, tt := range []struct {
		name, value string
		want        bool
	}{{"RC_GOINGDOWN", "YES", true}, {"RC_RUNLEVEL", "shutdown", true}, {"RC_RUNLEVEL", "default", false}, {"RC_GOINGDOWN", "NO", false}} {
		getenv := func(name string) string { return map[string]string{tt.name: tt.value}[name] }
		if got := isShuttingDown(t.Context(), getenv); got != tt.want {
			t.Errorf("%s=%s: %v", tt.name, tt.value, got)
		}
	}
}
