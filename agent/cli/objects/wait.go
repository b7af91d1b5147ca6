package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/pods/podstate"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/printable"
)

// applyWait contains the flags --wait and --timeout of islet apply, and the pods that it has applied.
type applyWait struct {
	wait    bool
	timeout time.Duration
	applied []api.Applied
}

func (a *applyWait) declareWait(flags *pflag.FlagSet) {
	flags.BoolVar(&a.wait, "wait", false, "wait until the pods are ready or have completed")
	flags.DurationVar(&a.timeout, "timeout", 5*time.Minute, "with --wait: maximum time to wait; 0 means without limit")
}

// add adds the pods of one manifest.
func (a *applyWait) add(done []api.Applied) {
	for _, d := range done {
		if shortKind(d.Kind) == "pod" {
			a.applied = append(a.applied, d)
		}
	}
}

// await waits until each applied pod is ready or has completed. It prints each result. The same manifest always gives a pod the same
// UID. A pod that is Terminating at first is therefore an earlier pod of this manifest, and the applied pod starts when it has ended.
func (a *applyWait) await(ctx context.Context, t *command.Tool) error {
	if !a.wait || len(a.applied) == 0 {
		return nil
	}
	timeout := a.timeout
	if timeout <= 0 {
		timeout = podstate.MaxWait
	}
	last := map[types.UID]string{}
	started := map[types.UID]bool{} // the pods that were seen before their deletion
	said := map[string]bool{}
	left, failed := a.applied, []error(nil)
	var unmet []types.NamespacedName
	err := podstate.Watch(ctx, t, timeout, func(pods []*v1.Pod) (bool, error) {
		byUID := map[types.UID]*v1.Pod{}
		for _, p := range pods {
			byUID[p.UID] = p
		}
		var next []api.Applied
		for _, d := range left {
			pod := byUID[d.UID]
			if pod != nil {
				last[d.UID] = podstate.Explain(pod, t.Now())
				started[d.UID] = started[d.UID] || pod.DeletionTimestamp == nil
			}
			if !started[d.UID] {
				pod = nil
			}
			switch state, err := appliedState(pod, started[d.UID], t.Now()); {
			case err != nil:
				failed = append(failed, fmt.Errorf("pod %s/%s %w", d.Namespace, d.Name, err))
				unmet = append(unmet, types.NamespacedName{Namespace: d.Namespace, Name: d.Name})
			case state != "":
				fmt.Fprintf(t.Out, "pod/%s %s\n", printable.Line(d.Name), state)
			default:
				next = append(next, d)
				explainWaiting(t, pod, said)
			}
		}
		left = next
		return len(left) == 0, nil
	})
	if !errors.Is(err, podstate.ErrTimeout) {
		podstate.PrintTroubles(ctx, t, unmet)
		return errors.Join(append(failed, err)...)
	}
	for _, d := range left {
		unmet = append(unmet, types.NamespacedName{Namespace: d.Namespace, Name: d.Name})
		failed = append(failed, fmt.Errorf("pod %s/%s is not ready after %s: it is %s; see islet describe %[1]s/%[2]s",
			d.Namespace, d.Name, timeout, cmp.Or(last[d.UID], "not known to the agent yet")))
	}
	podstate.PrintTroubles(ctx, t, unmet)
	return errors.Join(failed...)
}

// explainWaiting prints why the containers of a pod wait, for example for an image that cannot be pulled. It prints each reason once.
func explainWaiting(t *command.Tool, pod *v1.Pod, said map[string]bool) {
	if pod == nil {
		return
	}
	for st := range podspec.Statuses(&pod.Status) {
		w := st.State.Waiting
		if key := string(pod.UID) + "/" + st.Name; w != nil && w.Message != "" && !said[key+w.Reason] {
			said[key+w.Reason] = true
			text := fmt.Sprintf("pod/%s: container %s: %s: %s", pod.Name, st.Name, w.Reason, w.Message)
			fmt.Fprintln(t.Stderr, printable.Line(terminal.ShortenEnd(text, podstate.MaxReason)))
		}
	}
}

// appliedState returns "ready", "completed", or "" while the pod is in neither state. The parameter seen is true if an
// earlier call has found the pod. The error explains why the pod cannot become ready.
func appliedState(pod *v1.Pod, seen bool, now time.Time) (string, error) {
	switch {
	case pod == nil && seen, pod != nil && pod.DeletionTimestamp != nil:
		return "", errors.New("was deleted or replaced")
	case pod == nil:
		return "", nil
	case pod.Status.Phase == v1.PodFailed:
		return "", fmt.Errorf("has failed: it is %s; see islet logs %s/%s", podstate.Explain(pod, now), pod.Namespace, pod.Name)
	case pod.Status.Phase == v1.PodSucceeded:
		return "completed", nil
	case podspec.IsReady(&pod.Status):
		return "ready", nil
	}
	return "", nil
}
