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

// hintTimeout is the timeout of one call of iptables, which may wait for another program that has locked iptables.
const hintTimeout = 30 * time.Second

// createHint creates the chain with the host's own iptables. It does nothing on a host without iptables.
func createHint(ctx context.Context, log *slog.Logger) {
	for _, program := range []string{"iptables", "ip6tables"} {
		path, err := exec.LookPath(program)
		if err != nil {
			continue
		}
		if err := makeChain(ctx, path); err != nil && ctx.Err() == nil {
			log.Info("cannot create the iptables hint chain", "program",
				path, "chain", hintChain, "error", err)
		}
	}
}

// makeChain creates the chain unless it exists.
func makeChain(ctx context.Context, iptables string) error {
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	call := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, iptables, append([]string{"-w", "5", "-t", "mangle"}, args...)...)
		cmd.WaitDelay = time.Second // a child process may keep its output open
		return cmd.CombinedOutput()
	}
	said, err := call("-N", hintChain)
	if err == nil {
		return nil
	}
	if _, missing := call("-n", "-L", hintChain); missing == nil {
		return nil // it exists
	}
	return fmt.Errorf("%w: %.300s", err, strings.TrimSpace(string(said)))
}
