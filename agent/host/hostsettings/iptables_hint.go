package hostsettings

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/clock"
)

// hintChain is an iptables chain. Pods with their own iptables, such as network plugins, detect by this chain whether
// the host uses the legacy or the nftables variant.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/3178-iptables-cleanup
const hintChain = "KUBE-IPTABLES-HINT"

const (
	// hintTimeout is the timeout of one call of iptables, which may wait for another program that has locked iptables.
	hintTimeout = 30 * time.Second
	// hintInterval is the interval of a kubelet's check for removed chains. Some firewalls remove them when they reload.
	hintInterval = time.Minute
	maxHintDelay = time.Hour // after failures, as on a kernel without the table
)

// A hint is the chain of one program.
type hint struct {
	iptables string
	log      *slog.Logger
	delay    time.Duration // until the next check
	due      time.Time     // the time of the next check
	failed   bool          // the last check has failed
	created  bool          // the last check has created the chain; true before the first check
}

// keepHints creates the chain with the host's iptables and ip6tables, and creates it again when another program has removed it. It returns
// when ctx ends, or at once on a host without these programs. It runs both programs in the same burst as other checks of the node.
func keepHints(ctx context.Context, log *slog.Logger) {
	var hints []*hint
	for _, program := range []string{"iptables", "ip6tables"} {
		if path, err := exec.LookPath(program); err == nil {
			with := log.With("program", path, "chain", hintChain)
			hints = append(hints, &hint{iptables: path, log: with, delay: hintInterval, created: true})
		}
	}
	for len(hints) > 0 && ctx.Err() == nil {
		wait := maxHintDelay
		for _, h := range hints {
			if !time.Now().Before(h.due) {
				h.check(ctx)
			}
			wait = min(wait, time.Until(h.due))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// check creates the chain if it does not exist. It logs a failure only if the previous check has not failed, and a removed chain only if
// the previous check has found the chain.
func (h *hint) check(ctx context.Context) {
	created, err := makeChain(ctx, h.iptables)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && !h.failed:
		h.log.Info("cannot create the iptables hint chain", "error", err)
	case err == nil && created && !h.created && !h.failed:
		h.log.Info("the iptables hint chain was removed by another program and has been created again")
	}
	h.delay = min(2*h.delay, maxHintDelay)
	if err == nil {
		h.delay = hintInterval
	}
	h.failed, h.created = err != nil, created
	h.due = time.Now().Add(clock.UntilMultiple(h.delay))
}

// makeChain creates the chain unless it exists. It reports whether it has created the chain.
func makeChain(ctx context.Context, iptables string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	call := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, iptables, append([]string{"-w", "5", "-t", "mangle"}, args...)...)
		cmd.WaitDelay = time.Second // a child process may keep its output open
		return cmd.CombinedOutput()
	}
	if _, err := call("-n", "-L", hintChain); err == nil {
		return false, nil
	}
	if said, err := call("-N", hintChain); err != nil {
		return false, fmt.Errorf("%w: %.300s", err, strings.TrimSpace(string(said)))
	}
	return true, nil
}
