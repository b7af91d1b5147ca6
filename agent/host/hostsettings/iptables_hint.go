package hostsettings

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"time"
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

// keepHint creates the chain with the host's iptables or ip6tables, and creates it again when another program has removed it. It returns
// when ctx ends, or at once on a host without the program. It logs a failure, or that the chain was removed, only if the check before had
// another result.
func keepHint(ctx context.Context, program string, log *slog.Logger) {
	iptables, err := exec.LookPath(program)
	if err != nil {
		return
	}
	log = log.With("program", iptables, "chain", hintChain)
	delay, failed, removed := hintInterval, false, true
	for {
		created, err := makeChain(ctx, iptables)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failed:
			log.Info("cannot create the iptables hint chain", "error", err)
		case err == nil && created && !removed && !failed:
			log.Info("the iptables hint chain was removed by another program and has been created again")
		}
		delay = min(2*delay, maxHintDelay)
		if err == nil {
			delay = hintInterval
		}
		failed, removed = err != nil, created
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
	}
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
