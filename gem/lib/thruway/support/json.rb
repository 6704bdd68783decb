# frozen_string_literal: true

module Thruway
  # JSON for the server's own messages. The library `json` is not used: it may be a gem of the
  # application's bundle, and a version loaded before the bundle is set up would stop the
  # application's boot.
  module Json
    TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null|[\[\]{}]/
    NAMED = { "true" => true, "false" => false, "null" => nil }.freeze
    ESCAPES = { "\"" => "\\\"", "\\" => "\\\\", "\n" => "\\n", "\r" => "\\r", "\t" => "\\t",
                "\f" => "\\f", "\b" => "\\b" }.freeze
    CHARACTERS = { "n" => "\n", "r" => "\r", "t" => "\t", "f" => "\f", "b" => "\b" }.freeze

    module_function

    # Generates JSON of nil, booleans, numbers, Arrays and Hashes. Other objects become strings.
    def generate(object)
      case object
      when nil then "null"
      when true, false, Integer, Float then object.to_s
      when Array then "[#{object.map { |one| generate(one) }.join(",")}]"
      when Hash then "{#{object.map { |key, one| "#{quote(key)}:#{generate(one)}" }.join(",")}}"
      else quote(object)
      end
    end

    # Parses JSON that the engine or this module has generated. The input is not checked.
    def parse(text)
      value(text.scan(TOKEN).each)
    end

    def quote(object)
      text = object.to_s.encode(Encoding::UTF_8, invalid: :replace, undef: :replace).scrub
      text = text.gsub(/["\\\x00-\x1f]/) { |sign| ESCAPES[sign] || format("\\u%04x", sign.ord) }
      "\"#{text}\""
    end

    def value(tokens)
      case token = tokens.next
      when "{" then object(tokens)
      when "[" then array(tokens)
      when *NAMED.keys then NAMED[token]
      when /\A"/ then unquote(token)
      when /[.eE]/ then token.to_f
      else token.to_i
      end
    end

    def object(tokens)
      pairs = {}
      until tokens.peek == "}"
        key = unquote(tokens.next)
        pairs[key] = value(tokens)
      end
      tokens.next
      pairs
    end

    def array(tokens)
      items = []
      items << value(tokens) until tokens.peek == "]"
      tokens.next
      items
    end

    def unquote(token)
      token[1..-2].gsub(/\\(?:u(\h{4})|(.))/) { $1 ? [$1.hex].pack("U") : CHARACTERS.fetch($2, $2) }
    end

    private_class_method :quote, :value, :object, :array, :unquote
  end
end
