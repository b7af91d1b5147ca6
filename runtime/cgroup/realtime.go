package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// budgetFile is the file of the cpu controller in cgroup v1 with the CPU time that processes with FIFO and RR have in each
// period. It exists if the kernel has RT_GROUP_SCHED. New cgroups have a budget of 0, and then may have no such process.
// https://docs.kernel.org/scheduler/sched-rt-group.html
const budgetFile = "cpu.rt_runtime_us"

// raiseBudget gives the cgroup of a Guaranteed pod its budget for FIFO and RR. It gives kubepods the budget of all
// pods, and raises lower budgets of the cgroups above kubepods, because a cgroup can have no more than its parent. It does nothing if the
// pod needs no budget.
func (p *Pods) raiseBudget(pod *v1.Pod) error {
	if p.c.RealTime == nil {
		return nil
	}
	own, all := p.c.RealTime(pod)
	if own <= 0 || demand.Class(pod) != v1.PodQOSGuaranteed {
		return nil
	}
	kubepods := p.base[v1.PodQOSGuaranteed]["cpu"]
	if err := raiseBudgets(kubepods, all); err != nil {
		return err
	}
	return raiseBudgetOf(filepath.Join(kubepods, p.leafName(podName(p.root, v1.PodQOSGuaranteed, pod.UID))), own)
}

// raiseBudgets raises the budgets of a cgroup and of those above it that are lower.
func raiseBudgets(dir string, budget time.Duration) error {
	var dirs []string
	for ; dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, budgetFile)); err != nil {
			break // dir is above the root of the hierarchy
		}
		dirs = append(dirs, dir)
	}
	for _, dir := range slices.Backward(dirs) {
		if err := raiseBudgetOf(dir, budget); err != nil {
			return err
		}
	}
	return nil
}

func raiseBudgetOf(dir string, budget time.Duration) error {
	file := filepath.Join(dir, budgetFile)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the OCI runtime reports the error of the kernel
	}
	if err != nil {
		return err
	}
	if now, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && (now < 0 || now >= budget.Microseconds()) {
		return nil
	}
	if err := os.WriteFile(file, []byte(strconv.FormatInt(budget.Microseconds(), 10)), 0); err != nil {
		return fmt.Errorf("give a cgroup %v of real-time CPU time per period: %w: other cgroups may have the rest; "+
			"realTime.bandwidth of the EdgeConfiguration is the budget of all pods", budget, err)
	}
	return nil
}
