package images

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/podspec"
)

// diskUse contains the disk usage of one kind of data.
type diskUse struct {
	Type        string `json:"type"`
	Total       int    `json:"total"`
	InUse       int    `json:"inUse"`
	Size        uint64 `json:"size"`        // bytes
	Reclaimable uint64 `json:"reclaimable"` // bytes
	Command     string `json:"command,omitempty"`
}

// readDiskReport is the output of islet system df.
type diskReport struct {
	Usage []diskUse  `json:"usage"`
	Disks []api.Disk `json:"disks"`
}

// DiskUsage sets up islet system df.
func DiskUsage(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	output := flags.StringP("output", "o", "", "json or yaml")
	return func(ctx context.Context, _ []string) error {
		report, err := readDiskReport(ctx, t)
		if err != nil {
			return err
		}
		if *output != "" {
			return terminal.PrintObject(t, *output, report)
		}
		report.print(t)
		return nil
	}
}

// readDiskReport requests the disk usage of islet and its pods from the agent.
func readDiskReport(ctx context.Context, t *command.Tool) (*diskReport, error) {
	var sum stats.Summary
	var pruned api.Pruned
	var st api.Status
	if err := client.Get(ctx, t, api.PathStats, &sum); err != nil {
		return nil, err
	}
	if err := client.Call(ctx, t, http.MethodPost, api.PathImagePrune, url.Values{"dryRun": {"1"}}, nil, &pruned); err != nil {
		return nil, err
	}
	if pruned.Error != "" {
		return nil, errors.New(pruned.Error)
	}
	if err := client.Get(ctx, t, api.PathStatus, &st); err != nil {
		return nil, err
	}
	var objects []api.Object
	err := client.Get(ctx, t, api.PathObjects, &objects)
	if err != nil && command.CodeOf(err) != command.ExitNotFound { // a node without manifests has no such path
		return nil, err
	}
	pods, err := client.ListPods(ctx, t)
	if err != nil {
		return nil, err
	}
	usage := []diskUse{imageUse(&pruned, &sum)}
	usage = append(usage, podUse(sum.Pods, pods)...)
	if claims := claimUse(objects); claims.Total > 0 {
		usage = append(usage, claims)
	}
	return &diskReport{usage, st.Disks}, nil
}

// imageUse returns the disk usage of images. The sizes of single images count a shared layer once for each image. So
// imageUse returns the total that the runtime reports for its file system, if this total is known.
func imageUse(p *api.Pruned, sum *stats.Summary) diskUse {
	u := diskUse{Type: "Images", Total: len(p.Removed) + len(p.Kept), InUse: len(p.Kept), Command: "islet images prune"}
	for _, i := range p.Removed {
		u.Reclaimable += i.Size
		u.Size += i.Size
	}
	for _, k := range p.Kept {
		u.Size += k.Size
	}
	if r := sum.Node.Runtime; r != nil && r.ImageFs != nil && r.ImageFs.UsedBytes != nil {
		u.Size = *r.ImageFs.UsedBytes
		u.Reclaimable = min(u.Reclaimable, u.Size)
	}
	return u
}

// podUse returns the disk usage of running containers, of their logs and of emptyDir volumes.
func podUse(running []stats.PodStats, pods []v1.Pod) []diskUse {
	layers, logs, volumes := diskUse{Type: "Containers"}, diskUse{Type: "Logs"}, diskUse{Type: "EmptyDirs"}
	add := func(u *diskUse, fs *stats.FsStats) {
		if fs == nil || fs.UsedBytes == nil {
			return
		}
		u.Total++
		u.InUse++
		u.Size += *fs.UsedBytes
	}
	onDisk := map[string]bool{} // emptyDir volumes, by UID and name
	for i := range pods {
		for _, v := range pods[i].Spec.Volumes {
			if v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault {
				onDisk[string(pods[i].UID)+"/"+v.Name] = true
			}
		}
	}
	for _, p := range running {
		for i := range p.Containers {
			add(&layers, p.Containers[i].Rootfs)
			add(&logs, p.Containers[i].Logs)
		}
		for i := range p.VolumeStats {
			if v := &p.VolumeStats[i]; onDisk[p.PodRef.UID+"/"+v.Name] {
				add(&volumes, &v.FsStats)
			}
		}
	}
	return []diskUse{layers, logs, volumes}
}

// claimUse returns the disk usage of the directories of claims. The data of a claim is never removed
// automatically.
func claimUse(objects []api.Object) diskUse {
	u := diskUse{Type: "Claims", Command: "islet delete pvc NAME --delete-data"}
	for _, o := range objects {
		if o.Kind != podspec.Claim || o.Claim == nil || !o.Claim.Exists {
			continue
		}
		used := uint64(max(o.Claim.Used, 0))
		u.Total++
		u.Size += used
		if len(o.Pods) > 0 {
			u.InUse++
		} else {
			u.Reclaimable += used
		}
	}
	return u
}

func (r *diskReport) print(t *command.Tool) {
	var out terminal.Table
	out.AddRow("TYPE", "TOTAL", "IN USE", "SIZE", "RECLAIMABLE")
	for _, u := range r.Usage {
		reclaimable := api.FormatSize(u.Reclaimable)
		if u.Reclaimable > 0 && u.Size > 0 {
			reclaimable += fmt.Sprintf(" (%d%%)", min(u.Reclaimable*100/u.Size, 100))
		}
		if u.Reclaimable > 0 && u.Command != "" {
			reclaimable += ": " + u.Command
		}
		out.AddRow(u.Type, fmt.Sprint(u.Total), fmt.Sprint(u.InUse), api.FormatSize(u.Size), reclaimable)
	}
	out.Print(t.Out)
	if len(r.Disks) == 0 {
		return
	}
	fmt.Fprintln(t.Out)
	var disks terminal.Table
	disks.AddRow("DISK OF", "SIZE", "USED", "FREE")
	for _, d := range r.Disks {
		free := api.FormatSize(d.Free)
		if d.Total > 0 {
			free += fmt.Sprintf(" (%d%%)", d.Free*100/d.Total) // the fraction that evictionHard limits
		}
		disks.AddRow(d.Path, api.FormatSize(d.Total), api.FormatSize(d.Used), free)
	}
	disks.Print(t.Out)
}
