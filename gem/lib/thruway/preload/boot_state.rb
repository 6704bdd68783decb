# frozen_string_literal: true

# The state of Ruby itself that a boot may change: encodings, streams, the seed of random numbers,
# `$0`, the compiler's options. A child begins with the state of a fresh Ruby, and gets the changes
# when it asks for the feature that made them. `preload_template.rb` loads this file into its own
# anonymous module.
module BootState
  # A greater seed comes from Ruby, which chooses 128 bits. Any other seed was set by the program.
  OWN_SEED_MAX = 2**64
  # The number of words that a generator may have produced. More take too long to repeat.
  WORDS_MAX = 100_000
  CATEGORIES =
    Warning.respond_to?(:categories) ? Warning.categories : %i[deprecated experimental]
  COMPILER = RubyVM::InstructionSequence

  # The encodings of a stream. nil stands for the default one.
  OF_STREAM = lambda do |stream|
    next if stream.closed?

    external = stream.external_encoding
    external = nil if external == Encoding.default_external && !stream.internal_encoding
    [external, stream.internal_encoding, stream.binmode?]
  end
  SET_STREAM = lambda do |stream, state|
    external, internal, is_binary = state
    next if state.nil? || stream.closed?

    stream.binmode if is_binary
    stream.set_encoding(external, internal)
  end

  # How each part of the state is read, and how it is set.
  PARTS = {
    external: [-> { Encoding.default_external }, ->(name) { Encoding.default_external = name }],
    internal: [-> { Encoding.default_internal }, ->(name) { Encoding.default_internal = name }],
    stdin: [-> { OF_STREAM[STDIN] }, ->(state) { SET_STREAM[STDIN, state] }],
    stdout: [-> { OF_STREAM[STDOUT] }, ->(state) { SET_STREAM[STDOUT, state] }],
    stderr: [-> { OF_STREAM[STDERR] }, ->(state) { SET_STREAM[STDERR, state] }],
    fields: [-> { $, }, ->(text) { $, = text }],
    split: [-> { $; }, ->(text) { $; = text }],
    lines: [-> { $/ }, ->(text) { $/ = text }],
    compiler: [-> { COMPILER.compile_option }, ->(all) { COMPILER.compile_option = all }],
    warnings: [-> { CATEGORIES.to_h { |name| [name, Warning[name]] } },
               ->(all) { all.each { |name, is_on| Warning[name] = is_on } }],
    random: [-> { random }, ->(state) { repeat(*state) if state }],
    name: [-> { $0.dup }, ->(name) { $0 = name }],
    title: [-> { @title }, ->(title) { Process.setproctitle(title) if title }],
    verbose: [-> { $VERBOSE }, ->(level) { $VERBOSE = level }]
  }.freeze

  module_function

  def now = PARTS.transform_values { |read, _| read.call }

  # The parts that differ from `before`.
  def since(before) = now.reject { |part, value| before[part] == value }

  # Sets the parts in `state`. Ruby warns about some of them, hence the silence.
  def set(state)
    level, $VERBOSE = $VERBOSE, nil
    state.each { |part, value| PARTS.fetch(part).last.call(value) }
  ensure
    $VERBOSE = state.fetch(:verbose, level)
  end

  # The program's seed and the number of words that were drawn since; nil if the seed is Ruby's.
  def random
    seed = Random.seed
    return if seed > OWN_SEED_MAX

    [seed, words_drawn(seed)]
  end

  def words_drawn(seed)
    now = state_of(Random)
    copy = Random.new(seed)
    (0..WORDS_MAX).find do
      is_there = state_of(copy) == now
      copy.bytes(4) unless is_there
      is_there
    end
  end

  # The state of a generator. The number of words left is compared first, because that is fast:
  # Ruby's generator makes 624 words at a time.
  def state_of(generator) = [generator.send(:left), generator.send(:state)]

  def repeat(seed, words)
    Random.srand(seed)
    Random.bytes(4 * words.to_i)
  end

  # Keeps the last title that the block sets. Ruby shows no title before it runs its script.
  def keeping_titles
    original = Process.method(:setproctitle).unbind
    keep = ->(title) { @title = title.dup }
    define(->(title) { original.bind_call(self, title.tap(&keep)) })
    yield
  ensure
    define(original)
  end

  def define(body)
    level, $VERBOSE = $VERBOSE, nil
    Process.singleton_class.send(:define_method, :setproctitle, body)
  ensure
    $VERBOSE = level
  end
end
