package home

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"time"
)

// hintChain is the chain by which pods that bring an iptables of their own, such as those of
// network plugins, find out whether the host's is the legacy one or that of nftables.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/3178-iptables-cleanup
const hintChain = "KUBE-IPTABLES-HINT"

// hintTime bounds a call: another program may hold iptables' lock.
const hintTime = 30 * time.Second

// hint makes the chain with the host's own iptables, for which it is to speak. A host without
// one has no need of it.
func hint(ctx context.Context, log *slog.Logger) {
	for _, program := range []string{"iptables", "ip6tables"} {
		path, err := exec.LookPath(program)
		if err != nil {
			continue
		}
		if err := makeChain(ctx, path); err != nil && ctx.Err() == nil {
			log.Info("the chain that tells others which iptables this host uses cannot be made", "program",
				path, "chain", hintChain, "error", err)
		}
	}
}

// makeChain makes the chain, if it is not there.
func makeChain(ctx context.Context, iptables string) error {
	ctx, cancel := context.WithTimeout(ctx, hintTime)
	defer cancel()
	call := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, iptables, append([]string{"-w", "5", "-t", "mangle"}, args...)...)
		cmd.WaitDelay = time.Second // what it may have started holds its output
		return cmd.CombinedOutput()
	}
	said, err := call("-N", hintChain)
	if err == nil {
		return nil
	}
	if _, missing := call("-n", "-L", hintChain); missing == nil {
		return nil // it was there
	}
	return fmt.Errorf("%w: %.300s", err, strings.TrimSpace(string(said)))
}
