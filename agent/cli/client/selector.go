package client

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/islet-edge/islet/agent/cli/command"
)

// SelectorFlag is the flag -l.
type SelectorFlag struct{ Text string }

// DeclareSelector adds the flag to a command's flags.
func (s *SelectorFlag) DeclareSelector(flags *pflag.FlagSet) {
	flags.StringVarP(&s.Text, "selector", "l", "", "only pods with these labels, such as app=web,tier!=test or 'app in (a,b)'")
}

// ParseSelector parses the flag. It returns nil if the flag is not set, so every pod matches.
func (s *SelectorFlag) ParseSelector() (labels.Selector, error) {
	if s.Text == "" {
		return nil, nil
	}
	selector, err := labels.Parse(s.Text)
	if err != nil {
		return nil, command.Usage("selector %q: %v", s.Text, err)
	}
	return selector, nil
}

// SelectPods returns the pods that match the flag.
func (s *SelectorFlag) SelectPods(pods []v1.Pod) ([]v1.Pod, error) {
	selector, err := s.ParseSelector()
	if err != nil || selector == nil {
		return pods, err
	}
	return slices.DeleteFunc(slices.Clone(pods), func(p v1.Pod) bool { return !selector.Matches(labels.Set(p.Labels)) }), nil
}

// NoPods is the error for a selector or a namespace without pods. The parameter elsewhere is the number of matching pods
// in other namespaces.
func NoPods(selector, namespace string, anywhere bool, elsewhere int) error {
	text := "no pods"
	if selector != "" {
		text += fmt.Sprintf(" match the labels %s", selector)
	}
	if !anywhere {
		text += fmt.Sprintf(" in namespace %s", namespace)
		if elsewhere > 0 {
			text += fmt.Sprintf("; there are %d in others: use -A", elsewhere)
		}
	}
	return errors.New(text)
}
