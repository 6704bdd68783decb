# frozen_string_literal: true

require "date"
require "json"
require "yaml"

# Random YAML and JSON texts, right ones and wrong ones. The same seed makes the same texts.
class Texts
  SCALARS = [
    nil, true, false, 0, -1, 1 << 70, 0.5, -0.0, Float::INFINITY, :symbol, :"odd one", "", "text",
    "yes", "12", "1_000", "2001-01-01", "a: b", "- x", "ä€", "line\nline\n", "  padded  ", "#no",
    "\t", "~", "null", "\u{1f600}", "=", "<<", "x" * 300, Date.new(2001, 2, 3),
    Date.new(1500, 1, 1), Time.at(0, 5, :usec).utc
  ].freeze
  # YAML texts that `YAML.dump` never writes.
  BY_HAND = [
    "", "# only words\n", "---\n...\n", "a: &x {b: 1}\nc: *x\nd: *x\n",
    "a: &x [1, 2]\n<<: {b: *x}\n", "base: &b {k: v}\nuse:\n  <<: *b\n  k: w\n", "a: 1\na: 2\n",
    "? [1, 2]\n: three\n", "!ruby/regexp /a/\n", "!ruby/object:Object {}\n", "!str 12\n",
    "!!set {a, b}\n", "- !!binary aGFsbG8=\n", ":a: :b\n", "a: 0o17\n", "a: 017\n", "a: 0x1f\n",
    "a: 1e3\n", "a: .nan\n", "a: 12:30:45\n", "a: 2001-02-30\n", "a: [\n", "\tb: 1\n",
    "a: *nothing\n", "%YAML 1.1\n---\na: b\n", "--- a\n--- b\n", "'a': \"\\x41\\u263a\"\n",
    "a: |\n  x\n   y\n", "a: >-\n  x\n  y\n", "\xEF\xBB\xBFa: bom\n", "a: \xFF\n", "&a [*a]\n",
    "- &s text\n- *s\n", "a: !ruby/sym b\n"
  ].freeze

  def initialize(random)
    @random = random
  end

  def yaml
    rand(3).zero? ? pick(BY_HAND).b : YAML.dump(object(4)).b
  end

  # Long enough to be kept, most of them.
  def json
    text = JSON.generate({ "pad" => "p" * rand(3000), "it" => plain(object(4)) })
    case rand(8)
    when 0 then text[0, rand(text.size)]
    when 1 then text.sub("\"it\"", "\"json_class\"")
    else text
    end
  end

  private

  def rand(limit) = @random.rand(limit)
  def pick(list) = list[rand(list.size)]

  def object(depth)
    case depth.zero? ? 0 : rand(5)
    when 0..1 then pick(SCALARS)
    when 2 then Array.new(rand(5)) { object(depth - 1) }
    when 3 then Array.new(rand(5)) { [pick(SCALARS), object(depth - 1)] }.to_h
    else [shared = object(depth - 1), { "again" => shared, shared => 1 }]
    end
  end

  # Converts an object to one that JSON can express.
  def plain(object)
    case object
    when Array then object.map { |element| plain(element) }
    when Hash then object.to_h { |key, value| [key.to_s, plain(value)] }
    when Float then object.finite? ? object : nil
    when Date, Time, Symbol then object.to_s
    else object
    end
  end
end
