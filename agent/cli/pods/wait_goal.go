package pods

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/pods/jsonpath"
)

// goalKind is the kind of a state to wait for.
type goalKind int

const (
	goalCondition goalKind = iota
	goalCreated
	goalDeleted
	goalPath
)

// A goal is the state of a pod for which islet wait waits.
type goal struct {
	kind     goalKind
	text     string // for messages
	name     string // of the condition
	value    string // of the condition or of the field
	hasValue bool
	path     jsonpath.Path
}

// conditions are the types of pod conditions that --for accepts without "condition=".
func conditions() []v1.PodConditionType {
	return []v1.PodConditionType{v1.PodReady, v1.ContainersReady, v1.PodInitialized, v1.PodScheduled, v1.PodReadyToStartContainers}
}

// parseGoal parses the value of --for. It accepts the same values as kubectl. In addition, it
// accepts a type of condition without "condition=".
func parseGoal(text string) (goal, error) {
	kind, rest, joined := strings.Cut(text, "=")
	switch strings.ToLower(kind) {
	case "delete", "deleted":
		if !joined {
			return goal{kind: goalDeleted, text: "Deleted"}, nil
		}
	case "create", "created":
		if !joined {
			return goal{kind: goalCreated, text: "Created"}, nil
		}
	case "condition":
		name, value, has := strings.Cut(rest, "=")
		if name == "" || has && value == "" {
			return goal{}, command.Usage("--for=%s: must be condition=NAME or condition=NAME=VALUE", text)
		}
		return conditionGoal(name, value, has), nil
	case "jsonpath":
		return pathGoal(rest)
	}
	for _, known := range conditions() {
		if strings.EqualFold(kind, string(known)) && (!joined || rest != "") {
			return conditionGoal(string(known), rest, joined), nil
		}
	}
	for _, phase := range []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodFailed} {
		if strings.EqualFold(text, string(phase)) {
			return goal{}, command.Usage("--for=%s: %s is a phase: use --for=jsonpath={.status.phase}=%s", text, phase, phase)
		}
	}
	return goal{}, command.Usage("--for=%s: must be Ready, condition=NAME[=VALUE], jsonpath=EXPRESSION[=VALUE], Created or Deleted", text)
}

func conditionGoal(name, value string, has bool) goal {
	g := goal{kind: goalCondition, text: name, name: name, value: string(v1.ConditionTrue)}
	if has {
		g.value, g.text = value, name+"="+value
	}
	return g
}

// pathGoal parses EXPRESSION[=VALUE].
func pathGoal(text string) (goal, error) {
	expression, value, has := cutValue(text)
	if has && value == "" {
		return goal{}, command.Usage("--for=jsonpath=%s: needs a value after the equal sign", text)
	}
	path, err := jsonpath.Parse(expression)
	if err != nil {
		return goal{}, command.Usage("--for=jsonpath: %v", err)
	}
	return goal{kind: goalPath, text: text, path: path, value: value, hasValue: has}, nil
}

// cutValue splits an expression from its value at the first equal sign outside of brackets and braces.
func cutValue(text string) (expression, value string, found bool) {
	depth := 0
	for i, c := range text {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case '=':
			if depth <= 0 {
				return text[:i], strings.Trim(text[i+1:], `'" `), true
			}
		}
	}
	return text, "", false
}

// reached reports whether the pod is in the requested state. The parameter pod is nil if no pod has the name. The
// parameter uid is the UID of the pod when the wait began. If the goal is a ready pod and the pod has ended, reached
// returns an error.
func (g goal) reached(pod *v1.Pod, uid types.UID) (bool, error) {
	switch {
	case g.kind == goalDeleted:
		return pod == nil || pod.UID != uid, nil
	case pod == nil:
		return false, nil
	case g.kind == goalCreated:
		return true, nil
	case g.kind == goalPath:
		return g.reachedPath(pod)
	}
	for _, c := range pod.Status.Conditions {
		if strings.EqualFold(string(c.Type), g.name) && strings.EqualFold(string(c.Status), g.value) {
			return true, nil
		}
	}
	if ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed; ended && pod.DeletionTimestamp == nil &&
		strings.EqualFold(g.name, string(v1.PodReady)) && strings.EqualFold(g.value, string(v1.ConditionTrue)) {
		return false, fmt.Errorf("pod %s/%s has ended (%s), so it does not become ready", pod.Namespace, pod.Name, pod.Status.Phase)
	}
	return false, nil
}

func (g goal) reachedPath(pod *v1.Pod) (bool, error) {
	object, err := jsonpath.Decode(pod)
	if err != nil {
		return false, err
	}
	values := g.path.Find(object)
	switch {
	case len(values) == 0:
		return false, nil
	case len(values) > 1:
		return false, fmt.Errorf("the expression of --for=jsonpath selects %d values of pod %s/%s instead of one",
			len(values), pod.Namespace, pod.Name)
	case !g.hasValue:
		return true, nil
	}
	text, simple := jsonpath.Format(values[0])
	if !simple {
		return false, fmt.Errorf(
			"the expression of --for=jsonpath selects an object or a list of pod %s/%s, which cannot be compared with %q",
			pod.Namespace, pod.Name, g.value)
	}
	return text == g.value, nil
}
