# frozen_string_literal: true

# The protocol of training programs (docs/protocol.md) for programs in Ruby.
$LOAD_PATH.unshift File.join(__dir__, 'stubs') # written by generate.sh
require 'json'
require 'monitor'
require 'hopyard/v1/application_services_pb'

# One run of a job. The main thread trains, `listen` receives messages, `watch` checks time limits.
class Run
  include Hopyard::V1

  # Trains the object that the block makes from the hyperparameters, and ends the process. Without an agent it trains alone.
  # The object has train(position), which trains one iteration and returns its metrics; done?(position), save(path) and load(path).
  def self.train(&program)
    $stdout.sync = true # exit! flushes nothing
    values = JSON.parse(ENV.fetch('HOPYARD_HYPERPARAMETERS', '{}'), allow_nan: true)
    token = ENV.delete('HOPYARD_TOKEN') # not for child processes
    return new(ENV['HOPYARD_AGENT'], token).make { program.call(values) } if ENV['HOPYARD_AGENT']

    alone, position = program.call(values), 0
    puts "#{position += 1}: #{alone.train(position)}" until alone.done?(position)
  end

  def initialize(agent, token)
    @stub = ApplicationService::Stub.new(agent, :this_channel_is_insecure, channel_args: { 'grpc.enable_http_proxy' => 0 })
    @call = { metadata: { 'authorization' => "Bearer #{token}" } }
    @outbox, @lock, @released = Queue.new, Monitor.new, -1
    @news = @lock.new_cond
    say hello: AttachHello.new(pid: Process.pid, library: 'hopyard-ruby 0.1.0')
    @reader, @watcher = Thread.new { listen }, Thread.new { watch }
  end

  def make(&program) = exit!(catch(:over) { run(&program) }.tap { @reader.join(5) })

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  def say(**message) = (@said = now) && @outbox << AttachRequest.new(**message)
  def over? = @outbox.closed?
  def at_end? = @finished || (@until.positive? && @position >= @until)

  def run
    @lock.synchronize { @news.wait_until { @start } }
    @program = yield
    load if @start.snapshot
    @finished = @program.done?(@position)
    say started: RunStarted.new(position: @position)
    boundary({}, 0) if at_end? # nothing to train
    while @began = now # not `loop`, which would end on a StopIteration of the program
      boundary(@program.train(@position + 1), 1)
    end
  rescue StandardError, ScriptError => e
    finish :FAILED, failure: :FAILURE_CLASS_USER_CODE, message: e.full_message(highlight: false)
  end

  def boundary(metrics, trained) # Between two iterations. Returns when the next one may be trained.
    @lock.synchronize do
      seconds, @began, @at_boundary, @told_to_park = @began ? now - @began : 0, nil, true, false
      @finished = @program.done?(@position += trained)
      @ending = (@parked = at_end?) && @completes
      say report: Report.new(position: @position, metrics: metrics, seconds: seconds, at: Time.now.to_f,
                             at_until: @parked, finished: @finished)
      @news.wait_until { go_on? }
      @at_boundary = false
    end
  end

  def go_on?
    every = @start.snapshot_every.positive? && @position - @last_saved >= @start.snapshot_every && @stop != :TERMINATE
    save if every || @points.any? { |point| point <= @position }
    finish :TERMINATED if @stop == :TERMINATE
    finish :SUSPENDED, snapshot: save if @stop == :SUSPEND
    finish :UNTIL, snapshot: save if @parked && @ending
    !@parked && (@position < @allowed || @position <= @released)
  end

  def save
    return @snapshot if @snapshot&.position == @position

    @program.save(path = File.join(@scratch, 'state.txt'))
    @snapshot = @stub.save_state([SaveStateRequest.new(position: @position, path: path)], **@call).snapshot
    @last_saved = @position
    @points.reject! { |point| point <= @position }
    say snapshot_taken: SnapshotTaken.new(snapshot: @snapshot)
    @snapshot
  rescue GRPC::BadStatus, SystemCallError => e
    [GRPC::InvalidArgument, GRPC::NotFound].include?(e.class) ? raise : lost(e) # the program's failure, or that of the infrastructure
  end

  def load
    @stub.load_state(LoadStateRequest.new(folder: folder = File.join(@scratch, 'loaded')), **@call).to_a
    @program.load(File.join(folder, 'state.txt'))
  rescue StandardError => e
    lost(e)
  end

  def lost(error) = finish(:LOST, failure: :FAILURE_CLASS_INFRASTRUCTURE, message: error.message)

  def finish(reason, message: '', **more)
    warn message = message.dup.force_encoding('UTF-8').scrub[0, 8000] unless message.empty?
    @lock.synchronize do
      say ended: RunEnded.new(reason: :"RUN_END_REASON_#{reason}", position: @position, message: message, **more)
      @outbox.close # half-closes the stream
    end
    throw :over, !more[:failure]
  end

  def listen
    said = Enumerator.new { |stream| (message = @outbox.pop) ? stream << message : break while true }
    @stub.attach(said, **@call).each do |message|
      @heard = now # before the lock, which is held during a snapshot
      @lock.synchronize { hear(message) unless over? }
    end
    die(75, 'the agent hung up') unless over?
  rescue StandardError => e # exit code 75 from now on, whatever happens in the training
    die(@start ? 75 : 1, e.message)
  end

  def hear(message)
    case message.message
    when :start then start(message.start)
    when :decide then decide(message.decide)
    when :amend then say amended: RunAmended.new(ticket: message.amend.ticket, accepted: amend(message.amend), position: @position)
    end
    @news.broadcast
  end

  def start(said)
    @start, @scratch, @lease = said.start, said.scratch_folder, said.lease_seconds
    @until, @allowed, @completes = @start.until, @start.allowed, @start.completes
    @position = @last_saved = @start.snapshot&.position || 0
    @points = @start.snapshot_at.select { |point| point > @position }
  end

  def decide(said)
    @allowed = [@allowed, said.allowed].max
    here = @parked && said.position >= @position
    case said.decision
    when :DECISION_TERMINATE then @stop = :TERMINATE
    when :DECISION_SUSPEND then @stop ||= :SUSPEND
    when :DECISION_PARK then @told_to_park ||= here
    when :DECISION_CONTINUE
      @released = [@released, said.position].max
      @told_to_park, @ending, @parked = false, at_end?, at_end? if here
    end
  end

  def amend(to) # returns whether it is in time
    in_time = to.until.zero? || to.until > @position || (to.until == @position && @parked)
    in_time &&= to.snapshot_at.all? { |point| point > @position || (point == @position && @at_boundary) }
    return false if !in_time || @ending || @finished

    @until, @completes = to.until, false if to.until.positive?
    @points.concat(to.snapshot_at.to_a)
    @parked, @released = false, [@released, @position].max if @parked && @told_to_park && to.until > @position
    true
  end

  def watch
    tick = now
    until sleep(0.5) && over?
      @heard = now if now - tick > 2 # this process was stopped
      tick, began, limit = now, @began, @start&.iteration_timeout
      say heartbeat: AttachHeartbeat.new if tick - @said > 1
      next unless @start

      die(76, "the iteration took longer than #{limit} s") if began && limit.positive? && tick - began > limit
      die(75, "the agent was silent for #{@lease} s") if tick - @heard > @lease
    end
  end

  def die(code, why) = warn(why) || exit!(code) # immediately, whatever the training does
end
