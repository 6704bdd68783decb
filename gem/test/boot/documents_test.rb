# frozen_string_literal: true

require "booting"
require "texts"

# Random YAML and JSON files: the program reads the same objects with and without the pack, with the
# same frozen objects and the same identities. `cargo x prove documents` reads more files.
class DocumentsTest < Minitest::Test
  include Booting

  MAIN = <<~'RUBY'
    require "yaml"
    require "json"
    require "date"

    # Whether it matters that two of them are one object. Equal frozen texts are one object, or not:
    # that is up to the garbage collector.
    def identity?(object)
      return !object.frozen? if object.is_a?(String)

      [Array, Hash, Date, Time].include?(object.class)
    end

    # Everything that can be told of an object; an object that comes again, by its number.
    def describe(object, seen = {}.compare_by_identity)
      return "again #{seen[object]}" if seen.key?(object)

      seen[object] = seen.size if identity?(object)
      own = [object.class, object.frozen?]
      own << object.instance_variables unless object.instance_variables.empty?
      case object
      when String then own.push(object, object.encoding, object.valid_encoding?)
      when Array then own.concat(object.map { |element| describe(element, seen) })
      when Hash
        own.push(object.default, object.default_proc, object.compare_by_identity?)
        own.concat(object.map { |key, value| [describe(key, seen), describe(value, seen)] })
      when Date then own.push(object.inspect, object.start)
      when Float then own << [object].pack("G")
      else own << object.inspect.gsub(/0x\h+/, "")
      end
      own
    end

    def show(name, object)
      puts name, describe(object).inspect.gsub("], [", "],\n[")
    end

    def tell(name)
      object = yield
      show(name, object)
      # A second reading is not of the same objects.
      object << 1 if object.is_a?(Array) && !object.frozen?
      object.store(:more, 1) if object.is_a?(Hash) && !object.frozen?
      show(name, yield)
    rescue StandardError => e
      puts "#{name}: #{e.class} #{e.message}".gsub(/0x\h+/, "")
    end

    Dir["texts/*.yml"].sort.each do |path|
      tell(path) { YAML.load_file(path) }
      tell(path) { YAML.load_file(path, aliases: true, permitted_classes: [Date, Symbol, Time]) }
      tell(path) { YAML.safe_load_file(path, aliases: true, permitted_classes: [Symbol]) }
      tell(path) { YAML.safe_load_file(path, symbolize_names: true, freeze: true) }
      tell(path) { YAML.unsafe_load_file(path) }
      tell(path) { YAML.unsafe_load_file(File.expand_path(path), symbolize_names: true) }
      tell(path) { YAML.load(File.read(path), filename: path) }
    end
    Dir["texts/*.json"].sort.each do |path|
      tell(path) { JSON.parse(File.read(path)) }
      tell(path) { JSON.parse(File.read(path), symbolize_names: true) }
      tell(path) { JSON.load_file(path) }
      tell(path) { JSON.parse(File.read(path), object_class: Hash, freeze: true) }
      tell(path) { JSON.parse(File.binread(path)) }
      tell(path) { JSON.load(File.read(path)) }
    end
    puts $LOADED_FEATURES
  RUBY
  TEXTS_EACH = 40

  def test_random_documents
    (Booting.cases(TEXTS_EACH) / TEXTS_EACH).times do |number|
      program(files(Texts.new(Random.new(SEED + number)))) do |program|
        said = assert_same(program)
        assert_predicate said.status, :success?, said.err
        assert_documents_are_packed(program)
        change(program, Texts.new(Random.new(SEED - number - 1)))
        [[], [], ["--digest"]].each do |options|
          assert_said program.plain, program.run(*options), "seed #{SEED + number}"
        end
      end
    end
  end

  private

  def files(texts)
    made = { "main.rb" => MAIN }
    TEXTS_EACH.times do |number|
      made[format("texts/%03d.yml", number)] = texts.yaml
      made[format("texts/%03d.json", number)] = texts.json
    end
    made
  end

  # Half of the files say something else.
  def change(program, texts)
    (0...TEXTS_EACH).step(2) do |number|
      program.write(format("texts/%03d.yml", number), texts.yaml)
      program.write(format("texts/%03d.json", number), texts.json)
    end
  end

  def assert_documents_are_packed(program)
    shown = Open3.capture2(THRUWAY, "pack", "info", program.pack).first
    (PORTABLE.any? ? %w[yaml] : %w[yaml json]).each do |kind|
      assert_operator shown[/^#{kind} +(\d+)/, 1].to_i, :>, TEXTS_EACH / 2, shown
    end
  end
end
