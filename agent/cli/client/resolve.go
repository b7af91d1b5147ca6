package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/printable"
)

// A PodFlag is the flag -n. Without the flag, a pod is looked up in the default namespace first, and then in all
// namespaces.
type PodFlag struct{ Namespace string }

// Declare adds the flag to a command's flags.
func (p *PodFlag) Declare(flags *pflag.FlagSet) {
	flags.StringVarP(&p.Namespace, "namespace", "n", "", `the pod's namespace (default "default", then any)`)
}

// ListPods returns every pod of the node.
func ListPods(ctx context.Context, t *command.Tool) ([]v1.Pod, error) {
	var l v1.PodList
	if err := Get(ctx, t, "/pods", &l); err != nil {
		return nil, err
	}
	return l.Items, nil
}

// FindPod finds the pod that the user names.
func FindPod(ctx context.Context, t *command.Tool, p PodFlag, name string) (*v1.Pod, error) {
	pods, err := ListPods(ctx, t)
	if err != nil {
		return nil, err
	}
	return ChoosePod(pods, p.Namespace, name)
}

// IsPodKind reports whether a word is the kind in "pod NAME" or "pod/NAME", which users of kubectl write.
func IsPodKind(word string) bool { return slices.Contains([]string{"pod", "pods", "po"}, word) }

// trimKind removes the kind from the argument pod/NAME, unless a namespace with the name of the kind has this pod.
func trimKind(pods []v1.Pod, name string) string {
	kind, rest, ok := strings.Cut(name, "/")
	if !ok || !IsPodKind(kind) || slices.ContainsFunc(pods, func(p v1.Pod) bool { return p.Namespace == kind && p.Name == rest }) {
		return name
	}
	return rest
}

// ChoosePod returns the pod with the name NAMESPACE/NAME or NAME. If there is no such pod, and the name of exactly one
// pod begins with NAME, it returns that pod. It searches the given namespace. If no namespace is given, it searches the
// default namespace first, and then all namespaces.
func ChoosePod(pods []v1.Pod, namespace, name string) (*v1.Pod, error) {
	name = trimKind(pods, name)
	if ns, rest, ok := strings.Cut(name, "/"); ok {
		if namespace != "" && namespace != ns {
			return nil, command.Usage("pod %s is not in namespace %s", name, namespace)
		}
		namespace, name = ns, rest
	}
	if name == "" {
		return nil, command.Usage("a pod's name is empty")
	}
	for _, in := range []func(string) bool{
		func(ns string) bool { return ns == namespace || namespace == "" && ns == v1.NamespaceDefault },
		func(string) bool { return namespace == "" },
	} {
		for _, match := range []func(string) bool{
			func(n string) bool { return n == name },
			func(n string) bool { return strings.HasPrefix(n, name) },
		} {
			found := map[string]*v1.Pod{}
			for i, p := range pods {
				key := p.Namespace + "/" + p.Name
				// While a pod is being replaced, the old and the new pod have the same name. In that case it
				// chooses the pod that has containers.
				if in(p.Namespace) && match(p.Name) && (found[key] == nil || len(p.Status.ContainerStatuses) > 0) {
					found[key] = &pods[i]
				}
			}
			if len(found) > 1 {
				return nil, command.Usage("%q is ambiguous: it matches %s", name, joinNames(found))
			}
			for _, p := range found {
				return p, nil
			}
		}
	}
	if namespace != "" {
		name = namespace + "/" + name
	}
	return nil, command.ExitWith(command.ExitNotFound, fmt.Errorf("pod %q not found", name))
}

// ChooseContainer returns the requested name if it is a container of the pod. If name is empty, it returns the container
// that the pod's annotation names. Without the annotation, it returns the first container. If the pod has several
// containers, it also prints this choice.
func ChooseContainer(t *command.Tool, pod *v1.Pod, name string) (string, error) {
	if name != "" {
		for _, n := range ContainerNames(pod) {
			if n == name {
				return name, nil
			}
		}
		return "", command.ExitWith(command.ExitNotFound, fmt.Errorf("pod %s/%s has no container %q: it has %s",
			pod.Namespace, pod.Name, name, strings.Join(ContainerNames(pod), ", ")))

	}
	if n := pod.Annotations[keys.DefaultContainer]; n != "" {
		return n, nil
	}
	if len(pod.Spec.Containers) == 0 {
		return "", fmt.Errorf("pod %s/%s has no containers", pod.Namespace, pod.Name)
	}
	first := pod.Spec.Containers[0].Name
	if all := ContainerNames(pod); len(all) > 1 {
		fmt.Fprintf(t.Stderr, "Defaulted container %q out of: %s\n", first, printable.Line(strings.Join(all, ", ")))
	}
	return first, nil
}

// ContainerNames lists ordinary containers, then init containers, then ephemeral ones.
func ContainerNames(pod *v1.Pod) []string {
	var main, others []string
	for kind, c := range podspec.Containers(&pod.Spec) {
		if kind == podspec.Main {
			main = append(main, c.Name)
		} else {
			others = append(others, c.Name)
		}
	}
	return append(main, others...)
}

func joinNames(pods map[string]*v1.Pod) string {
	return strings.Join(slices.Sorted(maps.Keys(pods)), ", ")
}
