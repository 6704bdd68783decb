# frozen_string_literal: true

# What a boot may change in Ruby itself, and Ruby's own start sets again in a child: encodings,
# streams, the random numbers' seed, `$0`, the compiler's options. A child has it as at the start,
# until it asks for the feature that changed it. It is loaded into the module of its user (`load`
# with a module).
module BootState
  # A program's own seeds are smaller, Ruby's have 128 bits.
  OWN_SEED_MAX = 2**64
  # A generator that gave more words is not followed.
  WORDS_MAX = 100_000
  CATEGORIES =
    Warning.respond_to?(:categories) ? Warning.categories : %i[deprecated experimental]
  COMPILER = RubyVM::InstructionSequence

  # A stream that has no encoding of its own has the default one.
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

  # Of each part, how it is read and how it is set.
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

  # What is not as it was then.
  def since(before) = now.reject { |part, value| before[part] == value }

  # Ruby warns of some of them.
  def set(state)
    level, $VERBOSE = $VERBOSE, nil
    state.each { |part, value| PARTS.fetch(part).last.call(value) }
  ensure
    $VERBOSE = state.fetch(:verbose, level)
  end

  # The seed of the program's own, and how many words were drawn since; nil where it is Ruby's.
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

  # Ruby's generator makes 624 words at a time: how many are left is compared first.
  def state_of(generator) = [generator.send(:left), generator.send(:state)]

  def repeat(seed, words)
    Random.srand(seed)
    Random.bytes(4 * words.to_i)
  end

  # Before its script, Ruby does not show a title: the last one is kept.
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
