package node_test

import (
	"context"
	"errors"
	"testing"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// A fakeShutdown is a fake of the agent's shutdown. Begin sets the field going, and Cancel clears it.
type fakeShutdown struct {
	configured bool
	err        error
	going      bool
}

func (e *fakeShutdown) Begin(context.Context) (bool, error) {
	e.going = true
	return e.configured, e.err
}
func (e *fakeShutdown) Cancel(context.Context) error { e.going = false; return nil }

func TestShutdown(t *testing.T) {
	e := &fakeShutdown{configured: true}
	n, _ := servertest.Start(t, func(c *server.Config) { c.Shutdown = e })
	check(t, n, run(t, n, "", "shutdown"), 0,
		"all pods have ended or exceeded their time; the next boot starts them again, or islet shutdown --cancel\n", "")
	if !e.going {
		t.Error("the shutdown did not begin")
	}
	check(t, n, run(t, n, "", "shutdown", "--cancel"), 0, "the node starts pods again\n", "")
	if e.going {
		t.Error("the shutdown was not cancelled")
	}
	check(t, n, run(t, n, "", "shutdown", "--if-off"), 0, "", "")
	if e.going {
		t.Error("the shutdown began although the machine stays on")
	}
	check(t, n, run(t, n, "", "shutdown", "web"), command.ExitUsage, "",
		"islet: islet shutdown takes no arguments, not \"web\"\nSee 'islet shutdown --help'\n")
	e.err = errors.New("it was cancelled")
	check(t, n, run(t, n, "", "shutdown"), 1, "", "islet: it was cancelled\n")
	e.configured, e.err = false, nil
	check(t, n, run(t, n, "", "shutdown"), 1, "",
		"islet: shutdownGracePeriod is not set, so pods do not end in order: they run until the machine is off\n")
}
