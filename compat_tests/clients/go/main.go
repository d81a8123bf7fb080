// Scenarios with the official Go client. Usage: peers SERVICE_URL WEB_URL
//
// Each prints one line: its name, a tab, and what the client got, without texts that name topics.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

const patience = 30 * time.Second

var (
	client pulsar.Client
	web    string
	serial int
)

func topic() string {
	serial++
	return fmt.Sprintf("persistent://public/default/go-%d-%d", time.Now().UnixNano(), serial)
}

func rest(method string, name string, rest string) int {
	path := web + "/admin/v2/" + strings.Replace(name, "://", "/", 1) + rest
	request, _ := http.NewRequest(method, path, nil)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	_, _ = io.ReadAll(answer.Body)
	return answer.StatusCode
}

func producer(name string, mode pulsar.ProducerAccessMode) (pulsar.Producer, error) {
	return client.CreateProducer(pulsar.ProducerOptions{
		Topic: name, ProducerAccessMode: mode, DisableBatching: true, SendTimeout: patience,
	})
}

func send(p pulsar.Producer, text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := p.Send(ctx, &pulsar.ProducerMessage{Payload: []byte(text)})
	return err
}

// kind is the broker's or client's code for an error.
func kind(err error) string {
	if err == nil {
		return "ok"
	}
	for _, name := range []string{
		"TopicNotFound", "TopicTerminated", "ProducerFenced", "ProducerClosed", "ProducerBusy",
		"IncompatibleSchema", "AuthorizationError", "subscription name is required",
	} {
		if strings.Contains(strings.ReplaceAll(err.Error(), " ", ""), strings.ReplaceAll(name, " ", "")) {
			return name
		}
	}
	var coded *pulsar.Error
	if errors.As(err, &coded) {
		return fmt.Sprintf("code %d", coded.Result())
	}
	return err.Error()
}

func terminated() string {
	name := topic()
	p, err := producer(name, pulsar.ProducerAccessModeShared)
	if err != nil {
		return kind(err)
	}
	defer p.Close()
	first := kind(send(p, "a"))
	status := rest("POST", name, "/terminate")
	// This client tries again until the send's own deadline, with either broker.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err = p.Send(ctx, &pulsar.ProducerMessage{Payload: []byte("b")})
	next := err != nil
	_, err = producer(name, pulsar.ProducerAccessModeShared)
	return fmt.Sprintf("%s %d refused: %t %s", first, status, next, kind(err))
}

func exclusive() string {
	name := topic()
	owner, err := producer(name, pulsar.ProducerAccessModeExclusive)
	if err != nil {
		return kind(err)
	}
	_, second := producer(name, pulsar.ProducerAccessModeExclusive)
	_, shared := producer(name, pulsar.ProducerAccessModeShared)
	waiting := make(chan error, 1)
	go func() {
		_, err := producer(name, pulsar.ProducerAccessModeWaitForExclusive)
		waiting <- err
	}()
	time.Sleep(500 * time.Millisecond)
	owner.Close()
	select {
	case err := <-waiting:
		return fmt.Sprintf("%s %s, waiting: %s", kind(second), kind(shared), kind(err))
	case <-time.After(patience):
		return "waiting: nothing"
	}
}

func missing() string {
	_, err := producer("persistent://public/missing/t", pulsar.ProducerAccessModeShared)
	_, other := client.TopicPartitions("persistent://missing/n/t")
	return kind(err) + " " + kind(other)
}

func schemaOfBytes() string {
	name := topic()
	p, err := client.CreateProducer(pulsar.ProducerOptions{
		Topic: name, Schema: pulsar.NewBytesSchema(nil),
	})
	if err != nil {
		return kind(err)
	}
	defer p.Close()
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{
		Topic: name, SubscriptionName: "s", Schema: pulsar.NewBytesSchema(nil),
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	if err != nil {
		return kind(err)
	}
	defer consumer.Close()
	sent := kind(send(p, "x"))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	message, err := consumer.Receive(ctx)
	if err != nil {
		return sent + " " + kind(err)
	}
	_, err = client.CreateProducer(pulsar.ProducerOptions{Topic: name, Schema: pulsar.NewStringSchema(nil)})
	return fmt.Sprintf("%s %q then a schema of text: %s", sent, message.Payload(), kind(err))
}

func lastOfEmpty() string {
	name := topic()
	reader, err := client.CreateReader(pulsar.ReaderOptions{
		Topic: name, StartMessageID: pulsar.EarliestMessageID(),
	})
	if err != nil {
		return kind(err)
	}
	defer reader.Close()
	last, err := reader.GetLastMessageID()
	if err != nil {
		return kind(err)
	}
	return fmt.Sprintf("%d:%d next: %t", last.LedgerID(), last.EntryID(), reader.HasNext())
}

func main() {
	web = os.Args[2]
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	made, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: os.Args[1], OperationTimeout: patience, Logger: plog.NewLoggerWithLogrus(quiet),
	})
	if err != nil {
		panic(err)
	}
	client = made
	for _, each := range []struct {
		name string
		run  func() string
	}{
		{"terminated", terminated},
		{"exclusive", exclusive},
		{"missing", missing},
		{"schema of bytes", schemaOfBytes},
		{"last of empty", lastOfEmpty},
	} {
		fmt.Printf("%s\t%s\n", each.name, each.run())
	}
}
