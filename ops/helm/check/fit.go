package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
)

// A stop may take as long as requests in flight have, and a little more.
const stopSeconds = 35

// Checks what no schema says: a stop has its time, a gateway that opens its queue is not killed, a node can
// be drained, and Prometheus reaches what it is to scrape.
func fit(objects []map[string]any) error {
	var wrong []error
	scraped, closed, open := false, false, false
	for _, object := range objects {
		switch object["kind"] {
		case "Deployment", "StatefulSet":
			// A StatefulSet's template is in the same place.
			var set apps.Deployment
			if err := into(object, &set); err != nil {
				return err
			}
			wrong = append(wrong, pod(set.Spec.Template.Spec))
		case "PodDisruptionBudget":
			var budget policy.PodDisruptionBudget
			if err := into(object, &budget); err != nil {
				return err
			}
			if most := budget.Spec.MaxUnavailable.String(); most == "0" || most == "0%" {
				wrong = append(wrong, errors.New("no node could be drained"))
			}
		case "ServiceMonitor":
			scraped = true
		case "NetworkPolicy":
			closed = true
			var rules networking.NetworkPolicy
			if err := into(object, &rules); err != nil {
				return err
			}
			for _, rule := range rules.Spec.Ingress {
				for _, port := range rule.Ports {
					open = open || port.Port.String() == "admin"
				}
			}
		}
	}
	if scraped && closed && !open {
		wrong = append(wrong, errors.New("the NetworkPolicy shuts Prometheus out"))
	}
	return errors.Join(wrong...)
}

func pod(pod core.PodSpec) error {
	container, slept := pod.Containers[0], int64(0)
	if stop := container.Lifecycle; stop != nil && stop.PreStop != nil && stop.PreStop.Sleep != nil {
		slept = stop.PreStop.Sleep.Seconds
	}
	if left := *pod.TerminationGracePeriodSeconds - slept; left < stopSeconds {
		return fmt.Errorf("a stop has %d s, and needs %d", left, stopSeconds)
	}
	starts, lives := container.StartupProbe, container.LivenessProbe
	if starts == nil || !reflect.DeepEqual(starts.Exec, lives.Exec) {
		return errors.New("the startup probe does not ask what the liveness probe asks")
	}
	if starts.PeriodSeconds*starts.FailureThreshold < 600 {
		return errors.New("a start has less than ten minutes")
	}
	return nil
}

func into(object map[string]any, typed any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, typed)
}
